"""Browser tools: pages in Chromium, in processes apart from the worker's and without a network of their own."""
