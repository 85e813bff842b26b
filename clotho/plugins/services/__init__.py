"""The tools that call other models, over OpenAI-compatible APIs."""

from clotho.plugin import Plugin

PLUGIN = Plugin(
    "services",
    run_settings="clotho.plugins.services.settings:ModelServices",
    judge="clotho.plugins.services.asking:judge",
    tools=(
        "clotho.plugins.services.clarify:Clarify",
        "clotho.plugins.services.image_generate:ImageGenerate",
        "clotho.plugins.services.mixture_of_agents:MixtureOfAgents",
        "clotho.plugins.services.vision_analyze:VisionAnalyze",
    ),
)
