// One reader for each family of decoders: CONFIG's fields become the switches of MODEL. Each throws
// Error{kInput} that names a field. Source: the config classes of transformers 5.23. Data path:
// family_fields.h -> [here] -> transformer_switches.h. Pure.
#pragma once

#include "base/text/json_place.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

using FamilyReader = void(const JsonPlace& config, TransformerConfig& model);

// llama_families.cpp: blocks of Llama with other switches.
FamilyReader read_llama, read_mistral, read_phi3, read_smollm3, read_granite, read_stablelm,
    read_glm, read_glm4, read_seed_oss, read_helium, read_ernie, read_arcee, read_nemotron,
    read_starcoder2;
// norm_families.cpp: norms in other places, of other kinds.
FamilyReader read_gemma, read_gemma2, read_gemma3, read_olmo, read_olmo2, read_olmo3, read_cohere,
    read_cohere2;
// expert_families.cpp
FamilyReader read_qwen2, read_qwen3, read_qwen2_moe, read_qwen3_moe, read_mixtral, read_olmoe;
// gpt_families.cpp: names and fields of GPT-2 and of GPT-NeoX.
FamilyReader read_gpt2, read_gpt_bigcode, read_gptj, read_gpt_neox, read_falcon, read_phi;

}  // namespace dslaunch::storage
