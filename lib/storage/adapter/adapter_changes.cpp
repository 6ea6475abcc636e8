#include "storage/adapter/adapter_changes.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/kinds/dtype.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "storage/files/mapped_file.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/text_part.h"

namespace dslaunch::storage {

namespace {

constexpr std::string_view kWeight = ".weight";

std::vector<float> turned(const SafetensorsEntry& entry) {
    const int64_t rows = entry.shape[0], columns = entry.shape[1];
    std::vector<float> numbers(static_cast<size_t>(rows * columns));
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
            numbers[static_cast<size_t>(c * rows + r)] = number_at(entry, r * columns + c);
    return numbers;
}

bool same_numbers(const std::optional<SafetensorsEntry>& a,
                  const std::optional<SafetensorsEntry>& b) {
    if (!a || !b) return !a && !b;
    return a->dtype == b->dtype && a->shape == b->shape && std::ranges::equal(a->bytes, b->bytes);
}

// Returns true if A and B have the same type, shape and length, and the same bytes in a sample. The
// sample is BLOCKS blocks spread evenly over the tensor, and its end.
bool look_equal(const SafetensorsEntry& a, const SafetensorsEntry& b, size_t blocks) {
    constexpr size_t kBlockBytes = 4096;
    const std::string_view bytes_a = text_in(a.bytes), bytes_b = text_in(b.bytes);
    if (a.dtype != b.dtype || a.shape != b.shape || bytes_a.size() != bytes_b.size()) return false;
    for (size_t block = 0; block < blocks; ++block) {
        const size_t at = bytes_a.size() / blocks * block;
        if (bytes_a.substr(at, kBlockBytes) != bytes_b.substr(at, kBlockBytes)) return false;
    }
    const size_t last = std::max(bytes_a.size(), kBlockBytes) - kBlockBytes;
    return bytes_a.substr(last) == bytes_b.substr(last);
}

// The tensors of a model, however many files contain them.
class ModelTensors {
  public:
    explicit ModelTensors(const std::string& folder) {
        for (const std::string& path : safetensors_files_of(folder)) {
            if (!path.ends_with(".safetensors")) continue;
            const SafetensorsFile& file =
                *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
            for (const SafetensorsEntry& entry : file.entries()) by_name_[entry.name] = &entry;
        }
    }
    [[nodiscard]] const std::map<std::string, const SafetensorsEntry*>& by_name() const {
        return by_name_;
    }

  private:
    std::vector<std::unique_ptr<SafetensorsFile>> files_;
    std::map<std::string, const SafetensorsEntry*> by_name_;
};

// Returns true if the models in the folders A and B have the same tensors. Also returns true if a
// model cannot be read: the code that loads it later reports the error.
bool have_equal_weights(const std::string& a, const std::string& b) {
    constexpr size_t kBlocksOfAll = 1024;
    try {
        const ModelTensors of_a(a), of_b(b);
        if (of_a.by_name().empty() || of_b.by_name().empty()) return true;
        const size_t blocks = 1 + kBlocksOfAll / of_a.by_name().size();
        return std::ranges::equal(
            of_a.by_name(), of_b.by_name(), [&](const auto& one, const auto& other) {
                return one.first == other.first && look_equal(*one.second, *other.second, blocks);
            });
    } catch (const Error&) {
        return true;
    }
}

// Returns true if the path PATH suggests that the model there is BASE: both have the same last
// part, or PATH contains a folder models--ORG--NAME of the hub's cache.
bool may_be_named(const std::string& path, const std::string& base) {
    namespace fs = std::filesystem;
    const auto last = [](const std::string& name) {
        fs::path plain = fs::path(name).lexically_normal();
        if (!plain.has_filename()) plain = plain.parent_path();
        return lower(plain.filename().string());
    };
    std::error_code unreadable;
    const std::string whole = fs::absolute(path, unreadable).lexically_normal().string();
    return last(whole) == last(base) ||
           lower(whole).find("--" + last(base) + "/") != std::string::npos;
}

std::string key_of(std::string parameter) {
    if (parameter.ends_with(kWeight)) parameter.resize(parameter.size() - kWeight.size());
    return parameter;
}

// Returns true if CONFIG's target_parameters name PARAMETER.
bool is_target(const AdapterConfig& config, const std::string& parameter) {
    return std::ranges::any_of(config.target_parameters, [&](const std::string& target) {
        return parameter == target || parameter.ends_with("." + target);
    });
}

std::string weights_path_in(const std::string& folder) {
    const std::string path = fmt::format("{}/{}", folder, kAdapterWeights);
    std::error_code unreadable;
    const std::string pickle = folder + "/adapter_model.bin";
    if (!std::filesystem::exists(path, unreadable) && std::filesystem::exists(pickle, unreadable))
        fail(ExitCode::kInput,
             "{}: is a pickle, which is not supported; convert it in Python: "
             "safetensors.torch.save_file({{name: value.contiguous().clone() for name, value in "
             "torch.load(\"adapter_model.bin\").items()}}, \"{}\")",
             printable(pickle), kAdapterWeights);
    return path;
}

}  // namespace

std::vector<float> fp32_numbers(const SafetensorsEntry& entry) {
    int64_t numel = 1;
    for (const int64_t size : entry.shape) numel *= size;
    std::vector<float> numbers(static_cast<size_t>(numel));
    for (int64_t i = 0; i < numel; ++i) numbers[static_cast<size_t>(i)] = number_at(entry, i);
    return numbers;
}

std::vector<float> LowRankPair::read_a() const {
    if (is_of_table) return turned(b);
    if (experts == 1) return fp32_numbers(a);
    std::vector<float> numbers(static_cast<size_t>(r * in()));
    for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = number_at(a, expert * r * in() + static_cast<int64_t>(i));
    return numbers;
}

std::vector<float> LowRankPair::read_b() const {
    if (is_of_table) return turned(a);
    std::vector<float> numbers;
    numbers.reserve(static_cast<size_t>(outputs.numel * r));
    for (int64_t row = outputs.begin; row < outputs.end(); ++row)
        for (int64_t i = 0; i < r; ++i)
            numbers.push_back(number_at(b, (row * r + i) * experts + expert));
    return numbers;
}

bool WeightChange::is_same(const WeightChange& other) const {
    if (init != other.init || !same_numbers(magnitude, other.magnitude) || rows != other.rows ||
        !same_numbers(values, other.values) || pair.has_value() != other.pair.has_value())
        return false;
    if (pair) {
        // Both pairs change the same base weight, so equal numbers give equal results.
        return pair->scale == other.pair->scale && pair->r == other.pair->r &&
               pair->read_a() == other.pair->read_a() && pair->read_b() == other.pair->read_b();
    }
    return same_numbers(whole, other.whole);
}

std::string other_base_text(const std::string& adapter, const std::string& model) {
    const auto folder = model_folder_of(model);
    const std::string path = adapter + "/" + kAdapterConfig;
    std::error_code missing;
    if (!folder || !std::filesystem::exists(path, missing)) return "";
    const MappedFile config(path);
    const std::string base = parse_adapter_config(path, text_in(config.bytes())).base_model;
    if (base.empty()) return "";
    const auto base_folder = model_folder_of(base);
    if (base_folder ? have_equal_weights(*base_folder, *folder) : may_be_named(*folder, base))
        return "";
    return fmt::format(
        "{}: the adapter was trained with {}, but {} {}: with another model, the adapter gives "
        "wrong output",
        path, printable(base), printable(*folder),
        base_folder ? "has different weights (or contains the adapter already)"
                    : "has a different name");
}

AdapterChanges::AdapterChanges(const std::string& folder, const TransformerConfig* model)
    : folder_(folder), model_(model) {
    const std::string config_path = fmt::format("{}/{}", folder, kAdapterConfig);
    const MappedFile config(config_path);
    config_ = parse_adapter_config(config_path, text_in(config.bytes()));
    file_.emplace(weights_path_in(folder));
    for (const SafetensorsEntry& entry : file_->entries()) add(entry);
    add_pairs();
    require_pairs();
    require_saved();
    if (model_ != nullptr) settle_tied();
    if (changes_.empty())
        fail(ExitCode::kInput,
             "{}: has no tensors for the model, so it would change nothing: save the adapter again "
             "where it was trained",
             printable(folder));
    model_ = nullptr;
}

void AdapterChanges::refuse(const std::string& tensor, const std::string& why) const {
    fail(ExitCode::kInput, "{}/{}: tensor `{}` {}", printable(folder_), kAdapterWeights,
         printable(tensor), why);
}

std::string AdapterChanges::in_model(const std::string& path) const {
    return model_ == nullptr ? path : path_in_model(*model_, path);
}

WeightChange& AdapterChanges::change_of(const std::string& parameter) {
    return changes_[key_of(parameter)];
}

void AdapterChanges::add(const SafetensorsEntry& entry) {
    const AdapterName name = read_adapter_name(entry.name);
    if (name.role == AdapterRole::kCopy) return;
    // Skips the part of the model that reads images: its weights are not loaded either.
    if (model_ != nullptr && !model_->outer.empty() &&
        !name_in_text_model(name.path, model_->names.at("decoder")))
        return;
    if (name.role == AdapterRole::kUnknown)
        refuse(entry.name,
               "does not belong to a supported kind of LoRA: merge the adapter with the program "
               "that made it, and use the merged model");
    if (entry.dtype != DType::kF32 && !is_half(entry.dtype))
        refuse(entry.name,
               fmt::format("has type {}, expected F32, BF16 or F16", dtype_name(entry.dtype)));
    if (entry.bytes.empty())
        refuse(entry.name,
               "is empty: it was saved while its values were on other ranks (ZeRO-3, FSDP); save "
               "it again from the gathered model");
    const auto put = [&](std::optional<SafetensorsEntry>& place) {
        if (place && !same_numbers(place, entry))
            refuse(entry.name,
                   "appears twice: the file contains two adapters, or one under two names; save "
                   "only one of them");
        place = entry;
    };
    switch (name.role) {
        case AdapterRole::kWhole:
            if (is_of_experts(name.path)) return add_whole_stack(entry, name.path);
            return put(change_of(in_model(name.path)).whole);
        case AdapterRole::kMagnitude:
            if (!config_.is_dora)
                refuse(entry.name,
                       fmt::format("belongs to DoRA, but use_dora in {} is off, so PEFT would "
                                   "ignore it; the two files belong to different adapters",
                                   kAdapterConfig));
            return put(change_of(in_model(name.path)).magnitude);
        case AdapterRole::kBiasOfB: {
            WeightChange& bias = change_of(in_model(name.path) + ".bias");
            bias.scale = config_.scale_of(name.path);
            return put(bias.added);
        }
        case AdapterRole::kTokenRows:
            return add_token_rows(entry, name.path);
        default:
            add_half(entry, name);
    }
}

void AdapterChanges::add_half(const SafetensorsEntry& entry, const AdapterName& name) {
    if (entry.shape.size() != 2)
        refuse(entry.name,
               fmt::format("has {}, expected 2", counted(std::ssize(entry.shape), "dimension")));
    Half& half = halves_[{name.path, name.wraps}];
    const bool is_a = name.role == AdapterRole::kA || name.role == AdapterRole::kTableA;
    const bool of_table = name.role == AdapterRole::kTableA || name.role == AdapterRole::kTableB;
    const SafetensorsEntry*& place = is_a ? half.a : half.b;
    if (place != nullptr ||
        ((half.a != nullptr || half.b != nullptr) && half.is_of_table != of_table))
        refuse(entry.name, "appears twice: the file contains two adapters; save only one of them");
    place = &entry;
    half.is_of_table = of_table;
}

void AdapterChanges::add_token_rows(const SafetensorsEntry& entry, const std::string& path) {
    auto found = std::ranges::find_if(config_.token_rows, [&](const auto& named) {
        return named.first.empty() || path == named.first || path.ends_with("." + named.first);
    });
    // If the output layer is tied to the token embedding, PEFT also saves the embedding's rows
    // under the output layer's name.
    if (model_ != nullptr && model_->is_tied && in_model(path) == head_of(*model_))
        found = config_.token_rows.begin();
    if (found == config_.token_rows.end())
        refuse(entry.name,
               fmt::format("has rows of the embedding `{}`, but trainable_token_indices in {} does "
                           "not name this embedding; the two files belong to different adapters",
                           printable(path), kAdapterConfig));
    if (entry.shape.size() != 2 || entry.shape[0] != std::ssize(found->second))
        refuse(entry.name,
               fmt::format("does not have the {} rows that trainable_token_indices names",
                           found->second.size()));
    WeightChange& change = change_of(in_model(path));
    change.rows = found->second;
    change.values = entry;
}

void AdapterChanges::add_pairs() {
    for (const auto& [place, half] : halves_) {
        const auto& [path, wraps] = place;
        if (half.a == nullptr || half.b == nullptr) {
            const SafetensorsEntry& there = half.a != nullptr ? *half.a : *half.b;
            const char* const kind = half.is_of_table ? "lora_embedding" : "lora";
            refuse(there.name, fmt::format("has no matching {}_{}: half of the adapter for `{}` is "
                                           "missing; save it again where it was trained",
                                           kind, half.a != nullptr ? 'B' : 'A', printable(path)));
        }
        LowRankPair pair;
        pair.name = half.a->name;
        pair.a = *half.a;
        pair.b = *half.b;
        pair.is_of_table = half.is_of_table;
        pair.r = pair.a.shape[0];
        pair.outputs = {0, pair.b.shape[0]};
        require_target(path, pair);
        const bool is_stack = model_ != nullptr && model_->has_experts() &&
                              path.ends_with("." + model_->names.at("experts"));
        if (is_stack) {
            add_stack(path, pair);
        } else if (wraps > 0) {
            refuse(
                pair.name,
                "belongs to an adapter inside another adapter (`base_layer`), which is supported "
                "only for layers with experts: merge both with PEFT (merge_and_unload)");
        } else {
            // PEFT decides by the parameter's name whether target_parameters adapts it.
            const bool is_parameter = is_target(config_, path + ".weight");
            if (is_parameter && model_ != nullptr && model_->is_transposed)
                refuse(pair.name,
                       "adapts a weight of target_parameters, and this model stores weights as "
                       "[in, out], so lora_A and lora_B cannot be told apart: merge the adapter "
                       "with PEFT (merge_and_unload)");
            const std::string layer = is_parameter ? path + ".weight" : path;
            require_rank(layer, pair, 1);
            pair.scale = config_.scale_of(layer);
            add_pair(in_model(path), pair);
        }
    }
    halves_.clear();
}

void AdapterChanges::add_pair(const std::string& path, const LowRankPair& pair) {
    WeightChange& change = change_of(path);
    if (change.pair)
        refuse(pair.name,
               "changes a layer that another tensor also changes: the file contains two adapters, "
               "or one layer under two names");
    change.pair = pair;
    // If the file contains the whole base weight, this weight already includes the change that the
    // initialization made. If not, the same change must be made to the model's base weight.
    if (!change.whole && !pair.is_of_table && pair.experts == 1) change.init = config_.init;
    if (!config_.is_dora) return;
    const int64_t numel = pair.is_of_table ? pair.in() : pair.out();
    if (!change.magnitude || change.magnitude->shape != std::vector{numel})
        refuse(pair.name,
               fmt::format(
                   "needs a lora_magnitude_vector of {} elements, because use_dora in {} is on",
                   numel, kAdapterConfig));
}

// Checks that magnitudes and biases belong to layers with a pair: PEFT makes them for no other
// layers.
void AdapterChanges::require_pairs() const {
    constexpr std::string_view kBias = ".bias";
    for (const auto& [name, change] : changes_) {
        const std::optional<SafetensorsEntry>& beside =
            change.magnitude ? change.magnitude : change.added;
        if (!beside) continue;
        const auto layer =
            changes_.find(change.magnitude ? name : name.substr(0, name.size() - kBias.size()));
        if (layer == changes_.end() || !layer->second.pair)
            refuse(beside->name,
                   "belongs to a layer without lora_A and lora_B, so PEFT would ignore it: the "
                   "file is incomplete; save the adapter again where it was trained");
    }
}

// Splits PAIR, which adapts all experts of a layer, and adds one pair for each expert. In
// transformers 5 one parameter contains the matrices of all experts.
void AdapterChanges::add_stack(const std::string& path, const LowRankPair& pair) {
    const int64_t width = model_->width, inner = model_->expert_width, count = model_->experts;
    const bool up = pair.in() == width && pair.out() == 2 * inner;
    const bool down = pair.in() == inner && pair.out() == width;
    if (up == down || pair.r % count != 0)
        refuse(pair.name,
               fmt::format("has the shape [{}, {}], and its lora_B has {} rows; a layer of {} "
                           "experts needs [{} * r, {}] and {} rows, or [{} * r, {}] and {} rows",
                           pair.r, pair.in(), pair.out(), count, count, width, 2 * inner, count,
                           inner, width));
    const std::string parameter = path + (up ? ".gate_up_proj" : ".down_proj");
    require_rank(parameter, pair, count);
    LowRankPair one = pair;
    one.experts = count;
    one.r = pair.r / count;
    one.scale = config_.scale_of(parameter);
    for (one.expert = 0; one.expert < count; ++one.expert) {
        const std::string expert = fmt::format("{}.{}.", in_model(path), one.expert);
        if (down) {
            add_pair(expert + model_->names.at("down"), one);
            continue;
        }
        one.outputs = {0, inner};
        add_pair(expert + model_->names.at("gate"), one);
        one.outputs = {inner, inner};
        add_pair(expert + model_->names.at("up"), one);
    }
}

// Returns true if PATH names a parameter that contains all experts of a layer.
bool AdapterChanges::is_of_experts(const std::string& path) const {
    if (model_ == nullptr || !model_->has_experts()) return false;
    const std::string experts = "." + model_->names.at("experts");
    return path.ends_with(experts + ".gate_up_proj") || path.ends_with(experts + ".down_proj");
}

// Adds the matrices of all experts, which ENTRY stores one after the other.
void AdapterChanges::add_whole_stack(const SafetensorsEntry& entry, const std::string& path) {
    const int64_t width = model_->width, inner = model_->expert_width, count = model_->experts;
    const bool up = path.ends_with("gate_up_proj");
    const std::vector<int64_t> there =
        up ? std::vector{count, 2 * inner, width} : std::vector{count, width, inner};
    if (entry.shape != there)
        refuse(entry.name,
               fmt::format("has a shape that does not fit the model's {} experts", count));
    const std::string experts = in_model(path.substr(0, path.rfind('.')));
    const size_t bytes = entry.bytes.size() / static_cast<size_t>(up ? 2 * count : count);
    size_t part = 0;
    for (int64_t i = 0; i < count; ++i)
        for (const char* const kind : up ? std::vector{"gate", "up"} : std::vector{"down"}) {
            SafetensorsEntry one = entry;
            one.shape = up ? std::vector{inner, width} : std::vector{width, inner};
            one.bytes = entry.bytes.subspan(part++ * bytes, bytes);
            change_of(fmt::format("{}.{}.{}", experts, i, model_->names.at(kind))).whole = one;
        }
}

void AdapterChanges::require_rank(const std::string& path, const LowRankPair& pair,
                                  int64_t experts) const {
    const int64_t rank = config_.rank_of(path) * experts;
    if (pair.a.shape[0] == rank && pair.b.shape[1] == rank) return;
    refuse(pair.name,
           fmt::format("has rank {} and the matching {} has rank {}, but {} says {} (`r` and "
                       "`rank_pattern`); the two files belong to different adapters",
                       pair.a.shape[0], pair.is_of_table ? "lora_embedding_B" : "lora_B",
                       pair.b.shape[1], kAdapterConfig, rank));
}

// Refuses a pair of a layer that the config leaves out: PEFT makes no adapter for such a layer and
// skips its tensors.
void AdapterChanges::require_target(const std::string& path, const LowRankPair& pair) const {
    if (config_.target_names.may_have(path)) return;
    for (const char* end : {".weight", ".gate_up_proj", ".down_proj"})
        if (is_target(config_, path + end)) return;
    const bool is_head = model_ != nullptr && in_model(path) == head_of(*model_);
    if (is_head && config_.is_tied) return;
    refuse(pair.name, fmt::format("is an adapter for `{}`, which {} leaves out (target_modules, "
                                  "exclude_modules, layers_to_transform), so PEFT would ignore it; "
                                  "the two files belong to different adapters",
                                  printable(path), kAdapterConfig));
}

// Checks that the file has the tensors that modules_to_save names. If two modules are tied, the
// file may have their tensor under either name.
void AdapterChanges::require_saved() const {
    if (config_.modules_to_save.empty()) return;
    const auto missing = [&](const std::string& name) {
        fail(ExitCode::kInput,
             "{}/{}: lacks a module that modules_to_save in {} names (`{}`): the file is "
             "incomplete; save the adapter again where it was trained",
             printable(folder_), kAdapterWeights, kAdapterConfig, printable(name));
    };
    // PEFT ignores names that belong to no module.
    const auto is_module = [&](const std::string& name) {
        const std::string last = name.substr(name.rfind('.') + 1);
        return model_ == nullptr || parse_int(last) ||
               std::ranges::any_of(model_->names,
                                   [&](const auto& named) { return named.second == last; });
    };
    const auto first = std::ranges::find_if(config_.modules_to_save, is_module);
    if (first != config_.modules_to_save.end() &&
        std::ranges::none_of(changes_,
                             [](const auto& named) { return named.second.whole.has_value(); }))
        missing(*first);
    if (model_ == nullptr) return;
    for (const std::string& table : {table_of(*model_), head_of(*model_)})
        for (const std::string& name : config_.modules_to_save) {
            const auto change = changes_.find(table);
            if (table.ends_with(name) && (change == changes_.end() || !change->second.whole))
                missing(name);
        }
}

// Completes the changes of a model whose output layer is tied to the token table. The file may have
// the tensors of only one of these two modules. If rows of the table change, the output layer
// changes too. A new weight of one module also replaces the weight of the other, unless
// modules_to_save names the changed module. A table with a different number of rows always replaces
// the output layer too.
void AdapterChanges::settle_tied() {
    const std::string table_name = table_of(*model_), head_name = head_of(*model_);
    const bool has_any = changes_.contains(table_name) || changes_.contains(head_name);
    if (!has_any) return;
    WeightChange& table = changes_[table_name];
    if (table.pair && !table.pair->is_of_table)
        refuse(table.pair->name,
               "is an adapter of a linear layer, but has the name of the token embedding: an "
               "embedding needs lora_embedding_A and lora_embedding_B; if the adapter is for the "
               "output layer, name it for lm_head");
    if (!model_->is_tied) return;
    WeightChange& head = changes_[head_name];
    if (!table.rows.empty() && head.rows.empty()) {
        head.rows = table.rows;
        head.values = table.values;
    }
    if (head.init != AdapterInit::kNone)
        refuse(head.pair->name,
               "belongs to an output layer that is tied to the token embedding, so "
               "init_lora_weights changed both: merge the adapter with PEFT (merge_and_unload)");
    const auto is_of_base = [&](const WeightChange& change, const std::string& name) {
        return change.whole && std::ranges::none_of(config_.modules_to_save, [&](const auto& end) {
                   return name.ends_with(end);
               });
    };
    const bool has_grown = table.whole && table.whole->shape.size() == 2 &&
                           table.whole->shape[0] != model_->vocabulary;
    if (!head.whole && (has_grown || is_of_base(table, table_name))) head.whole = table.whole;
    if (!table.whole && is_of_base(head, head_name)) table.whole = head.whole;
}

void AdapterChanges::adapt(TransformerConfig& model) const {
    const auto change_at = [&](const std::string& name) -> const WeightChange& {
        static const WeightChange kNone;
        const auto found = changes_.find(name);
        return found == changes_.end() ? kNone : found->second;
    };
    const WeightChange& table = change_at(table_of(model));
    const WeightChange& head = change_at(head_of(model));
    const auto rows_of = [&](const WeightChange& change) {
        return change.whole && change.whole->shape.size() == 2 ? change.whole->shape[0]
                                                               : model.vocabulary;
    };
    if (rows_of(table) != rows_of(head))
        refuse(table.whole ? table.whole->name : head.whole->name,
               fmt::format("gives the embedding {} tokens, but the output layer has {}: save both "
                           "with the adapter (modules_to_save, or save_embedding_layers=True)",
                           rows_of(table), rows_of(head)));
    model.vocabulary = rows_of(table);
    if (model.is_tied && !table.is_same(head)) model.is_tied = false;
}

const WeightChange* AdapterChanges::take(const std::string& name) {
    const auto found = changes_.find(key_of(name));
    if (found == changes_.end()) return nullptr;
    found->second.is_taken = true;
    return &found->second;
}

void AdapterChanges::require_all_taken() const {
    for (const auto& [name, change] : changes_) {
        if (change.is_taken) continue;
        if (change.added && !change.whole)
            refuse(change.added->name,
                   "changes the bias of a layer without a bias, so it cannot be merged: use the "
                   "adapter with the model (`dslaunch generate --adapter`)");
        const SafetensorsEntry* first = nullptr;
        for (const auto* entry : {&change.whole, &change.magnitude, &change.added, &change.values})
            if (first == nullptr && *entry) first = &**entry;
        if (change.pair) first = &change.pair->a;
        if (first != nullptr)
            refuse(first->name,
                   config_.base_model.empty()
                       ? "belongs to no layer of the model"
                       : fmt::format("belongs to no layer of the model: the adapter was trained "
                                     "with {}: give this model",
                                     printable(config_.base_model)));
    }
}

}  // namespace dslaunch::storage
