// An adapter of a Hugging Face folder under the names that PEFT finds in transformers' modules,
// which hold the experts of a layer as one parameter. Data path: what training made -> [here] ->
// adapter_folder.h. Pure.
#pragma once

#include "graph/adapter/adapter_folder.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::graph {

// Renames what ADAPTER has, made beside MODEL, as transformers 5 names it. Pairs of single experts
// become one pair of all of them where PEFT doesn't do that when it loads them.
void to_peft_form(AdapterFolder& adapter, const storage::TransformerConfig& model);

}  // namespace dslaunch::graph
