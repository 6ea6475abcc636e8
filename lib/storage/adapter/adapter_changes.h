// An adapter's changes to a model's weights. A layer may have a pair of small matrices A [r, in]
// and B [out, r], and a magnitude for each row of its weight. A table may have changed rows. A
// whole parameter may replace the model's parameter. Data path: adapter_config.json,
// adapter_model.safetensors -> [here] -> graph/adapter (training, model merge), decoder/weights
// (generate, eval, serve). One thread at a time.
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

// The change of a weight [out, in]: scale times B times A.
struct LowRankPair {
    std::string name;  // name of A in the file, for messages
    SafetensorsEntry a, b;
    bool is_of_table = false;  // `a` and `b` are the file's B and A, transposed
    int64_t r = 0;
    double scale = 1;
    // One parameter may contain the weights of several experts. An adapter of this parameter is
    // split into one pair for each expert. This pair belongs to expert number `expert` of
    // `experts`. Its matrices are r rows of A, and a part of B: the rows `outputs`, and in them the
    // columns number `expert + i * experts`.
    int64_t expert = 0, experts = 1;
    Range outputs;

    // Return the sizes of the weight [out, in].
    [[nodiscard]] int64_t in() const { return is_of_table ? b.shape[0] : a.shape[1]; }
    [[nodiscard]] int64_t out() const { return is_of_table ? a.shape[1] : outputs.numel; }
    [[nodiscard]] std::vector<float> read_a() const;  // [r, in]
    [[nodiscard]] std::vector<float> read_b() const;  // [out, r]
};

// All changes of one parameter; a member without a value changes nothing.
struct WeightChange {
    std::optional<SafetensorsEntry> whole;
    AdapterInit init = AdapterInit::kNone;  // changes the weight before all other changes
    std::optional<LowRankPair> pair;
    std::optional<SafetensorsEntry> magnitude;  // [out], or [in] for a table
    // A tensor that is multiplied by `scale` and then added to a bias.
    std::optional<SafetensorsEntry> added;
    double scale = 1;
    std::vector<int64_t> rows;  // indices of changed rows of a table; `values` has their values
    std::optional<SafetensorsEntry> values;
    bool is_taken = false;

    // Returns true if OTHER changes the same base weight in the same way; compares the numbers in
    // the files.
    [[nodiscard]] bool is_same(const WeightChange& other) const;
};

// Returns the elements of ENTRY as fp32. REQUIRES: they are F32, BF16 or F16.
[[nodiscard]] std::vector<float> fp32_numbers(const SafetensorsEntry& entry);

// Returns a message if the adapter in folder ADAPTER was trained with a different model than the
// one in the Hugging Face folder MODEL, else an empty text. If the folder of the adapter's base
// model is on this machine, compares samples of each tensor's bytes. Otherwise compares only the
// names of the models. Also returns an empty text if the weights of one of the models cannot be
// read. Blocks on the disk.
[[nodiscard]] std::string other_base_text(const std::string& adapter, const std::string& model);

// An open adapter. Keeps its file mapped.
class AdapterChanges {
  public:
    // Reads both files of FOLDER, an adapter of MODEL. MODEL is null if the model is not a Hugging
    // Face folder. Throws Error{kInput}, naming the file and the tensor, if a tensor belongs to no
    // adapter or is not floating-point, if a pair is incomplete or missing, or if tensors of
    // modules_to_save are missing. Also throws if a pair contradicts the config: the rank differs,
    // or the config gives the layer no adapter.
    AdapterChanges(const std::string& folder, const TransformerConfig* model);

    // Return the adapter's folder, and the content of the folder's adapter_config.json.
    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] const AdapterConfig& config() const { return config_; }
    // Returns the changes by the names of their weights, without the ending ".weight".
    [[nodiscard]] const std::map<std::string, WeightChange>& all() const { return changes_; }

    // Changes MODEL to fit the adapter. MODEL's vocabulary gets the size of the adapter's tables.
    // If the adapter changes the output layer and the token table differently, MODEL gets a
    // separate output layer.
    void adapt(TransformerConfig& model) const;

    // Returns the change of the parameter NAME, or null if there is none. After all calls,
    // require_all_taken() throws Error{kInput}, naming the tensor, if a change was never returned.
    [[nodiscard]] const WeightChange* take(const std::string& name);
    void require_all_taken() const;

    // Throws Error{kInput} that names the adapter's file, TENSOR and WHY.
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
        bool is_of_table = false;
    };
    std::string folder_;
    const TransformerConfig* model_ = nullptr;
    AdapterConfig config_;
    std::optional<SafetensorsFile> file_;
    std::map<std::pair<std::string, int>, Half> halves_;  // by AdapterName's path and wraps
    std::map<std::string, WeightChange> changes_;
};

}  // namespace dslaunch::storage
