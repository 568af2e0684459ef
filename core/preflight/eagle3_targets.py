"""Targets whose class in vLLM hands out the hidden states that EAGLE-3 heads need. Data.

Read from vLLM 0.32.0: architectures of ``model_executor/models/registry.py`` whose class has
``SupportsEagle3`` among its bases, inherited ones included. A newer vLLM may know more.
"""

EAGLE3_TARGETS_VERSION = "0.32"
_ARCHITECTURES = """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM Cohere2MoeForCausalLM
    CohereCompassForConditionalGeneration Cosmos3ForConditionalGeneration CwmForCausalLM
    DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM
    DeepseekV41ForCausalLM DeepseekV4ForCausalLM DeepseekV4ForConditionalGeneration
    Emu3ForConditionalGeneration Ernie4_5ForCausalLM Exaone4_5_ForConditionalGeneration
    FlexOlmoForCausalLM GPTBigCodeForCausalLM GPTNeoXForCausalLM Gemma4ForCausalLM
    Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration Glm5NextForCausalLM
    Glm5NextForConditionalGeneration GlmForCausalLM GlmMoeDsaForCausalLM GptOssForCausalLM
    GraniteForCausalLM GraniteSWAForCausalLM HunYuanDenseV1ForCausalLM
    HunYuanMoEV1ForCausalLM HunYuanVLForConditionalGeneration IQuestCoderForCausalLM
    InternLM3ForCausalLM InternS1ProForConditionalGeneration
    InternS2MobiusForConditionalGeneration InternS2PreviewForConditionalGeneration
    Jais2ForCausalLM K2HorizonForCausalLM KimiK25ForConditionalGeneration
    KimiK3ForConditionalGeneration KimiLinearForCausalLM LLaMAForCausalLM LagunaForCausalLM
    LightOnOCRForConditionalGeneration Llama4ForCausalLM Llama4ForConditionalGeneration
    LlamaForCausalLM LlavaForConditionalGeneration MellumForCausalLM MiMoForCausalLM
    MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiMoV2OmniForCausalLM MiniCPM3ForCausalLM
    MiniCPMForCausalLM MiniCPMV4_6ForConditionalGeneration
    MiniCPMV4_7ForConditionalGeneration MiniMaxM2ForCausalLM MiniMaxM3SparseForCausalLM
    MiniMaxM3SparseForConditionalGeneration Ministral3ForCausalLM
    Mistral3ForConditionalGeneration MistralForCausalLM MistralLarge3ForCausalLM
    MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration NanbeigeForCausalLM
    NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3
    NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3
    Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OpenCUAForConditionalGeneration
    Phi3ForCausalLM PhiForCausalLM PixtralForConditionalGeneration Plamo3ForCausalLM
    Qwen2ForCausalLM Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration
    Qwen3ASRRealtimeGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
    Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
    Qwen4ExpForConditionalGeneration SarvamMLAForCausalLM SeedOssForCausalLM
    SmolLM3ForCausalLM Starcoder2ForCausalLM Step1ForCausalLM TeleChat2ForCausalLM
    TeleChat3ForCausalLM TeleFLMForCausalLM VaultGemmaForCausalLM
    VibeVoiceAsrForConditionalGeneration
"""
EAGLE3_TARGETS: frozenset[str] = frozenset(_ARCHITECTURES.split())
