// The tensors of a decoder in a GGUF file: their names there, and how each is made from the weights
// of the family's modules. Source: the converter and the tensor tables of llama.cpp. Data path:
// transformer_switches.h -> [here] -> folder_weights.h, storage/gguf_model. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "storage/gguf/gguf_file.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// A family of decoders as llama.cpp knows it.
struct GgufFamily {
    const char* architecture;  // in config.json: "LlamaForCausalLM"
    const char* name;          // in the file: "llama"
    const char* model_type;    // in config.json: "llama"
    // True if element 2i of a head rotates with element 2i + 1; false if i rotates with i + half.
    bool turns_neighbours;
};

// Returns all families that both programs know.
[[nodiscard]] std::span<const GgufFamily> gguf_families();
// Returns the family of CONFIG. Throws Error{kInput} that begins with PLACE if llama.cpp does not
// have it.
[[nodiscard]] const GgufFamily& gguf_family_of(const TransformerConfig& config,
                                               const std::string& place);

// The change that makes the numbers in the file from a weight of the modules.
enum class GgufChange {
    kNone,
    kAddOne,     // norms that multiply by 1 + the weight: the file has the sum
    kTranspose,  // the modules store [inputs, outputs]
    kTurn,       // in each of `heads` heads, row i + j * half becomes row 2 * i + j
    kByKey,      // rows ordered by key head become all queries, then all keys, then all values
};

// A tensor of the file.
struct GgufWeight {
    std::string tensor;              // "blk.0.attn_q.weight"
    std::vector<std::string> names;  // in the modules; several are stacked along a new dimension 0
    std::vector<int64_t> sizes;      // sizes of each weight in the modules
    GgufChange change = GgufChange::kNone;
    int64_t heads = 0;      // kTurn: heads of the weight; kByKey: heads of queries
    int64_t key_heads = 0;  // kByKey: heads of keys

    // Returns the sizes of the tensor in the file.
    [[nodiscard]] std::vector<int64_t> file_sizes() const;
};

// Returns the tensors of a decoder, in the order in which they are written. REQUIRES: the family of
// CONFIG is FAMILY.
[[nodiscard]] std::vector<GgufWeight> gguf_weights(const TransformerConfig& config,
                                                   const GgufFamily& family);

// A weight of a module, as a file contains it.
struct GgufModuleWeight {
    std::string name;                          // its name in the modules
    std::vector<int64_t> sizes;                // its sizes in the modules
    bool is_exact = false;                     // its numbers are plain floats of 32 bits
    std::function<std::vector<float>()> read;  // keeps the file open
};

// Returns the weights of the decoder CONFIG that FILE contains; each of them keeps FILE open. Also
// returns tensors that do not belong to the decoder, under their own names. Leaves out tensors
// whose values are in config.json. Throws Error{kInput} naming the file and the tensor if a shape
// is not the one that CONFIG requires.
[[nodiscard]] std::vector<GgufModuleWeight> weights_in_gguf(
    const std::shared_ptr<const GgufFile>& file, const TransformerConfig& config);

// Changes NUMBERS, a weight of one of WEIGHT's modules, to the numbers in the file.
void change_for_gguf(const GgufWeight& weight, std::vector<float>& numbers);
// Changes NUMBERS from the file into the weight of the module.
void change_from_gguf(const GgufWeight& weight, std::vector<float>& numbers);

}  // namespace dslaunch::storage
