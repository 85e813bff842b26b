"""What every HTTP server of Clotho does with connections and requests before it looks at them."""
