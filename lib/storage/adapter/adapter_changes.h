// An adapter's changes of a model's weights: pairs of small matrices A [r, in] and B [out, r]
// beside a layer, magnitudes of its rows, rows of tables, and whole parameters for the model's.
// Data path: adapter_config.json, adapter_model.safetensors -> [here] -> graph/adapter (training,
// model merge), decoder/weights (generate, eval, serve). One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/range.h"
#include "storage/adapter/adapter_config.h"
#include "storage/adapter/adapter_names.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// The change of a weight [out, in]: scale times B A.
struct LowRankPair {
    std::string name;  // of A in the file, for messages
    SafetensorsEntry a, b;
    bool of_table = false;  // A is B of the table's pair, transposed, and B is its A
    int64_t r = 0;
    double scale = 1;
    // One weight of EXPERTS that lie one after the other has its rows of A and every EXPERTS-th
    // column of B; OUTPUTS are the rows of B.
    int64_t expert = 0, experts = 1;
    Range outputs;

    [[nodiscard]] int64_t in() const { return of_table ? b.shape[0] : a.shape[1]; }
    [[nodiscard]] int64_t out() const { return of_table ? a.shape[1] : outputs.numel; }
    [[nodiscard]] std::vector<float> read_a() const;  // [r, in]
    [[nodiscard]] std::vector<float> read_b() const;  // [out, r]
};

struct WeightChange {
    std::optional<SafetensorsEntry> whole;
    AdapterInit init = AdapterInit::kNone;  // of the weight, before all that follows
    std::optional<LowRankPair> pair;
    std::optional<SafetensorsEntry> magnitude;  // [out]; of a table [in]
    // The tensor that is added to a bias, times `scale`.
    std::optional<SafetensorsEntry> added;
    double scale = 1;
    std::vector<int64_t> rows;  // of a table; `values` has their values
    std::optional<SafetensorsEntry> values;
    bool taken = false;

    [[nodiscard]] bool is_same(const WeightChange& other) const;
};

// Returns the numbers of ENTRY as fp32. REQUIRES: they are F32, BF16 or F16.
[[nodiscard]] std::vector<float> fp32_numbers(const SafetensorsEntry& entry);

// Returns a text that says that the ADAPTER's folder names another base than the Hugging Face
// folder MODEL. Empty: it names this one, as far as the names show, or the weights if both folders
// are here. Blocks on the disk.
[[nodiscard]] std::string other_base_text(const std::string& adapter, const std::string& model);

class AdapterChanges {
  public:
    // Reads both files of FOLDER, an adapter of MODEL (null: a model that is no Hugging Face
    // folder). Throws Error{kInput} naming the file and the tensor: one that belongs to no adapter,
    // or is not floating-point; half of a pair; a tensor that needs a pair and has none; a pair of
    // another rank than the config's; a layer that the config leaves out; and a file without the
    // tensors that modules_to_save names.
    AdapterChanges(const std::string& folder, const TransformerConfig* model);

    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] const AdapterConfig& config() const { return config_; }
    // The changes by the names of the weights, without ".weight" at their end.
    [[nodiscard]] const std::map<std::string, WeightChange>& all() const { return changes_; }

    // Changes MODEL as the adapter does: it gets as many tokens as the adapter's tables have, and
    // an output layer of its own if the adapter changes that otherwise than the table.
    void adapt(TransformerConfig& model) const;

    // Returns the change of the parameter NAME; null: it has no change. require_all_taken() throws
    // Error{kInput} naming the tensor that nobody took.
    [[nodiscard]] const WeightChange* take(const std::string& name);
    void require_all_taken() const;

    [[noreturn]] void refuse(const std::string& tensor, const std::string& why) const;

  private:
    void add(const SafetensorsEntry& entry);
    [[nodiscard]] bool is_of_experts(const std::string& path) const;
    void add_whole_stack(const SafetensorsEntry& entry, const std::string& path);
    void add_half(const SafetensorsEntry& entry, const AdapterName& name);
    void add_pairs();
    void add_pair(const std::string& path, const LowRankPair& pair);
    void add_stack(const std::string& path, const LowRankPair& pair);
    void add_token_rows(const SafetensorsEntry& entry, const std::string& path);
    void require_rank(const std::string& path, const LowRankPair& pair, int64_t experts) const;
    void require_target(const std::string& path, const LowRankPair& pair) const;
    void require_pairs() const;
    void require_saved() const;
    void settle_tied();
    [[nodiscard]] std::string in_model(const std::string& path) const;
    WeightChange& change_of(const std::string& parameter);

    struct Half {
        const SafetensorsEntry* a = nullptr;
        const SafetensorsEntry* b = nullptr;
        bool of_table = false;
    };
    std::string folder_;
    const TransformerConfig* model_ = nullptr;
    AdapterConfig config_;
    std::optional<SafetensorsFile> file_;
    std::map<std::pair<std::string, int>, Half> halves_;  // by path and wraps
    std::map<std::string, WeightChange> changes_;
};

}  // namespace dslaunch::storage
