"""Conversations as the tokens that a model reads, and sampled tokens as messages.

The way of a tool's result into the prompt of the next turn, in token-exact mode:

1. `Transcript.messages_before` (clotho/rollouts/transcript.py) reads the call's entry as a message of role `tool`.
2. `TokenExact.sample_turn` (clotho/models/token_exact.py) asks `Renderer.next_prompt` (renderer.py) for the prompt.
   It extends the last turn's tokens by `bridge`, or renders the conversation anew where it can't.
3. `open_renderer` (resolve.py) has chosen the renderer. Models that the package `renderers` knows by name, such as
   Qwen/Qwen3-8B, have its own one: `PackagedRenderer` (packaged.py). All others, such as Qwen2.5 and fine-tunes,
   have `TemplateRenderer` (template_renderer.py), which goes by the model's chat template.
4. Both give the messages to `for_template` (messages.py), which marks text that looks like a special token.
5. The package or the template writes the result, for Qwen within `<tool_response>`. `ChatTemplate.continuation`
   (chat_template.py) is the text that follows the last turn; `Tokenizer` (tokenizers.py) encodes it.

In chat mode nothing of this is used: `OpenAIChat` (clotho/models/openai_chat.py) sends the messages, and the server
renders them.
"""
