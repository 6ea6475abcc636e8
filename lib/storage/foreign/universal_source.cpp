#include "storage/foreign/universal_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;

constexpr const char* kWeightsFile = "fp32";
constexpr const char* kStepFile = "step";

// The states of an optimizer, in the order in which dslaunch stores them.
struct KnownStates {
    const char* optimizer;
    std::vector<std::string> states;
};
const std::vector<KnownStates>& known_states() {
    static const std::vector<KnownStates> known = {
        {"adam", {"exp_avg", "exp_avg_sq"}},
        {"adam", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
        {"lion", {"exp_avg"}},
        {"sgd", {"momentum_buffer"}},
        {"adagrad", {"sum"}},
    };
    return known;
}

// Returns the names of the entries of FOLDER that SELECTS takes, sorted. Throws Error{kInput}.
template <typename Selects>
std::vector<std::string> names_in(const std::string& folder, const Selects& selects) {
    std::vector<std::string> names;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
        if (selects(entry)) names.push_back(entry.path().filename().string());
    if (error) refuse(folder, "cannot be listed: {}", error.message());
    std::ranges::sort(names);
    return names;
}

}  // namespace

bool is_universal(const std::string& folder) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder + "/zero", error))
        if (fs::exists(entry.path() / "fp32.pt", error)) return true;
    return false;
}

UniversalSource::UniversalSource(const std::string& folder) {
    folder_ = folder;
    open_models();
    open_others();
    read_counts();
    read_optimizer();
    find_parameters();
    choose_states();
    for (const std::string& name : in_order()) add_parameter(name, parameters_.at(name));
    fill_states();
    refuse_split_others();
    add_others();
    add_aliases();
    check_weights();
    about_.zero_stage = static_cast<int>(stage_);
    about_.world_size = std::max<int>(
        static_cast<int>(integer_or(models_.front()->root().find("dp_world_size"), 1)), 1);
    writer_ = fmt::format("DeepSpeed {}, universal, from ZeRO stage {}", about_.version, stage_);
}

void UniversalSource::open_models() {
    const std::vector<std::string> names = names_in(folder_, [](const fs::directory_entry& entry) {
        const std::string name = entry.path().filename().string();
        return name.ends_with("_model_states.pt") && name.find("mp_rank_00_") != std::string::npos;
    });
    if (names.empty())
        refuse(folder_,
               "has no *mp_rank_00_model_states.pt, which contains the steps and buffers: the "
               "universal checkpoint is incomplete");
    for (size_t rank = 0; rank < names.size(); ++rank) {
        // File names have ranks without leading zeros, so sorted names are not in the ranks' order.
        const std::string name = fmt::format("zero_pp_rank_{}_mp_rank_00_model_states.pt", rank);
        const bool by_rank = names.front().starts_with("zero_pp_rank_");
        models_.push_back(std::make_unique<TorchFile>(
            fmt::format("{}/{}", folder_, by_rank ? name : names[rank])));
        check_same_model(*models_.back(), *models_.front());
    }
}

// Opens the first file of each further model rank.
void UniversalSource::open_others() {
    const TorchFile& first = *models_.front();
    for (const std::string& name : names_in(folder_, [](const fs::directory_entry& entry) {
             const std::string file = entry.path().filename().string();
             return file.ends_with("_model_states.pt") && file.find("mp_rank_") != file.npos &&
                    file.find("mp_rank_00_") == file.npos &&
                    (!file.starts_with("zero_pp_rank_") || file.starts_with("zero_pp_rank_0_"));
         })) {
        others_.push_back(std::make_unique<TorchFile>(fmt::format("{}/{}", folder_, name)));
        check_same_model(*others_.back(), first);
    }
    const int64_t wrote = integer_or(first.root().find("mp_world_size"), 1);
    if (wrote > std::ssize(others_) + 1)
        refuse(folder_,
               "{} model ranks wrote the checkpoint, but only {} of the *_model_states.pt files "
               "are there: the checkpoint is incomplete",
               wrote, others_.size() + 1);
    rules_ = std::make_unique<SplitRules>(first, first.root().find("universal_checkpoint_info"),
                                          others_.size() + 1);
}

// Reads the stage, the loss scale, and the count of updates of a checkpoint of stage 3.
void UniversalSource::read_optimizer() {
    const TorchFile& file =
        *files_.emplace_back(std::make_unique<TorchFile>(folder_ + "/zero/optimizer_state.pt"));
    const PickleValue& state = file.root();
    read_scaler(state);
    stage_ = zero_stage_in(state).value_or(1);  // BF16_Optimizer does not say so
    if (stage_ < 1 || stage_ > 3) refuse(file.path(), "ZeRO stage {} is not supported", stage_);
    const PickleValue* inner = state.find("optimizer_state_dict");
    const PickleValue* states = inner == nullptr ? nullptr : inner->find("state");
    for (size_t i = 0; states != nullptr && i + 1 < states->items.size(); i += 2)
        optimizer_updates_ =
            std::max(optimizer_updates_, updates_of(file, states->items[i + 1]->find("step")));
    // apex's and DeepSpeed's FusedAdam store the step count in param_groups.
    for (const PickleValue* from : {&state, inner}) {
        const PickleValue* groups = from == nullptr ? nullptr : from->find("param_groups");
        for (size_t i = 0; groups != nullptr && i < groups->items.size(); ++i)
            optimizer_updates_ =
                std::max(optimizer_updates_, updates_of(file, groups->items[i]->find("step")));
    }
}

// Reads the parameters and buffers in the file of one model rank. Adds them to untrained_,
// buffers_, frozen_ and shapes_.
void UniversalSource::find_shapes(const TorchFile& file) {
    const PickleValue& model = file.root();
    for (const PickleValue* name : need(file, model, "buffer_names").items) {
        untrained_.insert(name->text);
        buffers_.insert(name->text);
    }
    if (const PickleValue* pairs = model.find("shared_params"))
        for (size_t i = 0; i + 1 < pairs->items.size(); i += 2)
            untrained_.insert(pairs->items[i]->text);
    if (const PickleValue* frozen = model.find("frozen_param_shapes"))
        for (size_t i = 0; i + 1 < frozen->items.size(); i += 2)
            frozen_.insert(frozen->items[i]->text);
    const PickleValue* groups = model.find("param_shapes");
    if (groups == nullptr) return;
    std::vector<const PickleValue*> dicts = groups->items;
    if (groups->kind == Kind::kDict) dicts = {groups};
    bool shares = false;
    for (const PickleValue* group : dicts)
        for (size_t i = 0; i + 1 < group->items.size(); i += 2) {
            const std::string& name = group->items[i]->text;
            const auto shape = shape_of(*group->items[i + 1]);
            if (!shape) continue;
            // Two pipeline stages share only tied parameters. If model ranks share any other
            // parameter, they are tensor ranks.
            const bool is_new = shapes_.try_emplace(name, *shape).second;
            shares = shares || (!is_new && !name.starts_with("tied_modules."));
        }
    if (shares) ++tensor_ranks_;
}

void UniversalSource::find_parameters() {
    find_shapes(*models_.front());
    for (const auto& file : others_) find_shapes(*file);
    const std::string zero = folder_ + "/zero";
    for (const std::string& name :
         names_in(zero, [](const fs::directory_entry& entry) { return entry.is_directory(); })) {
        Files files;
        const std::string folder = fmt::format("{}/{}", zero, name);
        for (const std::string& entry : names_in(folder, [](const fs::directory_entry& each) {
                 return each.path().extension() == ".pt";
             }))
            files[entry.substr(0, entry.size() - 3)] = fmt::format("{}/{}", folder, entry);
        if (!files.contains(kWeightsFile))
            refuse(folder, "has no fp32.pt, the file of the weights: the checkpoint is incomplete");
        const bool has_states = files.size() > 1;
        if (untrained_.contains(name) || !(has_states || shapes_.contains(name))) continue;
        parameters_[name] = std::move(files);
    }
    for (const auto& [name, shape] : shapes_)
        if (!parameters_.contains(name) && !untrained_.contains(name))
            refuse(zero, "has no folder of `{}`, which is trained: the checkpoint is incomplete",
                   name);
}

// Determines the optimizer by the files of the first parameter that has states. Other parameters
// have the same files, or no files if they never had a gradient.
void UniversalSource::choose_states() {
    std::vector<std::string> found;
    for (const auto& [name, files] : parameters_) {
        std::vector<std::string> own;
        for (const auto& [what, path] : files)
            if (what != kWeightsFile && what != kStepFile) own.push_back(what);
        if (own.empty()) continue;
        if (found.empty()) found = own;
        if (found != own)
            refuse(folder_ + "/zero",
                   "`{}` has the states {}, but other parameters have {}: only optimizers that "
                   "treat all parameters alike are supported, or a file is missing",
                   name, fmt::join(own, ", "), fmt::join(found, ", "));
    }
    if (found.empty()) {
        notes_.emplace_back("it has no optimizer states");
        return;
    }
    for (const KnownStates& known : known_states()) {
        std::vector<std::string> sorted = known.states;
        std::ranges::sort(sorted);
        if (sorted != found) continue;
        about_.optimizer = known.optimizer;
        about_.states = known.states;
        return;
    }
    refuse(folder_ + "/zero", "its optimizer has the states {}, which are not supported",
           fmt::join(found, ", "));
}

// Returns the names of parameters in the model's order as far as it is known.
std::vector<std::string> UniversalSource::in_order() const {
    std::vector<std::string> names;
    std::set<std::string> seen;
    const auto take = [&](const std::string& name) {
        if (parameters_.contains(name) && seen.insert(name).second) names.push_back(name);
    };
    for (const char* key : {"module", "param_shapes"}) {
        const PickleValue* found = models_.front()->root().find(key);
        if (found == nullptr) continue;
        std::vector<const PickleValue*> dicts = {found};
        if (found->kind == Kind::kList) dicts = found->items;
        for (const PickleValue* dict : dicts)
            for (size_t i = 0; dict->kind == Kind::kDict && i + 1 < dict->items.size(); i += 2)
                take(dict->items[i]->text);
    }
    for (const auto& [name, files] : parameters_) take(name);
    return names;
}

// Returns the tensor in the file PATH. The file contains only the tensor, or a dict with the tensor
// under "param".
TorchTensor UniversalSource::value_in(const std::string& path, const std::string& name) {
    const TorchFile& file = *files_.emplace_back(std::make_unique<TorchFile>(path));
    const PickleValue* value = &file.root();
    if (value->kind == Kind::kDict) {
        if (value->find("is_expert_param") != nullptr)
            refuse(path, "belongs to a mixture of experts, which is not supported");
        value = value->find("param");
    }
    TorchTensor tensor = file.tensor(value, name);
    if (tensor.dtype != DType::kF32)
        refuse(path, "its values are of type {}, expected fp32", dtype_name(tensor.dtype));
    return tensor;
}

int64_t UniversalSource::updates_in(const Files& files) {
    const auto step = files.find(kStepFile);
    if (step != files.end()) {
        const TorchFile& file = *files_.emplace_back(std::make_unique<TorchFile>(step->second));
        if (file.root().kind != Kind::kInteger && file.root().kind != Kind::kTensor)
            refuse(file.path(), "its step is no number");
        return updates_of(file, &file.root());
    }
    if (optimizer_updates_ > 0) return optimizer_updates_;
    const std::string note = fmt::format(
        "its parameters have no count of updates (step.pt): the model's count, {}, is used",
        about_.training.updates);
    if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
    return about_.training.updates;
}

// Returns the shape of the parameter NAME, whose weights in the file at PATH may be flat.
std::vector<int64_t> UniversalSource::shape_of_weights(const std::string& path,
                                                       const std::string& name,
                                                       const TorchTensor& weights,
                                                       bool has_states) const {
    const auto known = shapes_.find(name);
    if (known == shapes_.end()) return weights.shape;
    const std::vector<int64_t>& own = known->second;
    if (tensor_ranks_ > 1) {
        // The known shape is the shape of one rank's part.
        const bool is_flat = weights.shape.size() == 1 && own.size() > 1;
        if (is_flat && numel_of(own) != weights.numel())
            refuse(path,
                   "its weights are flat, and the shape of `{}`, which tensor ranks share, is not "
                   "known",
                   name);
        if (has_states) return is_flat ? own : weights.shape;
        // If a parameter never had a gradient, ds_to_universal.py copies it from the model of rank
        // 0, which may have only a part of the parameter.
        const std::vector<std::vector<int64_t>> parts(others_.size() + 1, own);
        if (tensor_ranks_ != parts.size() || rules_->of(name, parts).shape != weights.shape)
            refuse(
                path,
                "`{}` has no optimizer states, so ds_to_universal.py stored only the part of the "
                "first of {} tensor ranks: import the checkpoint that ds_to_universal.py converted",
                name, tensor_ranks_);
        return weights.shape;
    }
    const int64_t rows = rules_->vocabulary_rows(name);
    std::vector<int64_t> stripped = own;
    if (rows >= 0 && !own.empty()) stripped.front() = std::min(own.front(), rows);
    for (const std::vector<int64_t>& shape : {own, stripped})
        if (weights.shape == shape ||
            (weights.shape.size() == 1 && numel_of(shape) == weights.numel()))
            return shape;
    refuse(path, "has {} elements, but `{}` has {}", weights.numel(), name, numel_of(own));
}

void UniversalSource::add_parameter(const std::string& name, const Files& files) {
    const TorchTensor weights = value_in(files.at(kWeightsFile), name);
    CheckpointTensor tensor;
    tensor.name = name;
    const bool has_states = files.size() > 1;
    tensor.shape = shape_of_weights(files.at(kWeightsFile), name, weights, has_states);
    TensorChunks chunks = {Chunks{weights.bytes}};
    tensor.updates = has_states ? updates_in(files) : 0;
    // A tensor may have one update more than the run, because FP16_Optimizer makes and counts an
    // update with zeros before the first real update.
    if (tensor.updates > about_.training.updates + 1)
        refuse(files.at(kWeightsFile),
               "its optimizer has made {} updates, but {} says {}: files from different saves are "
               "mixed",
               tensor.updates, models_.front()->path(), about_.training.updates);
    for (size_t k = 0; k < about_.states.size(); ++k) {
        const auto state = files.find(about_.states[k]);
        if (state == files.end()) {
            zeros_.resize(std::max(zeros_.size(), weights.bytes.size()));
            continue;
        }
        const TorchTensor values = value_in(state->second, name);
        if (values.numel() != weights.numel())
            refuse(state->second, "has {} elements, but the weights have {}", values.numel(),
                   weights.numel());
        chunks[k + 1] = {values.bytes};
    }
    add(std::move(tensor), std::move(chunks));
}

// Gives zeros to parameters without states, which never had a gradient.
void UniversalSource::fill_states() {
    for (TensorChunks& chunks : chunks_)
        for (size_t k = 1; k <= about_.states.size(); ++k)
            if (chunks[k].empty())
                chunks[k] = {std::span<const std::byte>(zeros_).first(chunks[0].front().size())};
}

// If there are several model ranks, refuses frozen parameters, because the checkpoint has at most a
// part of each. If the first rank's file lacks buffers, adds a note about them.
void UniversalSource::refuse_split_others() {
    if (others_.empty()) return;
    std::set<std::string> frozen = frozen_;
    const PickleValue* module = models_.front()->root().find("module");
    for (size_t i = 0; module != nullptr && i + 1 < module->items.size(); i += 2)
        if (!untrained_.contains(module->items[i]->text)) frozen.insert(module->items[i]->text);
    for (const std::string& name : frozen)
        if (!places_.contains(name))
            refuse(
                models_.front()->path(),
                "a universal checkpoint of several model ranks does not contain all parts of the "
                "frozen parameter `{}`: import the checkpoint that ds_to_universal.py converted",
                name);
    std::vector<std::string> lost;
    for (const std::string& name : buffers_)
        if (module == nullptr || module->find(name) == nullptr) lost.push_back(name);
    if (lost.empty()) return;
    const size_t shown = std::min<size_t>(lost.size(), 8);
    notes_.push_back(fmt::format(
        "its {} buffers are not in a universal checkpoint of several model ranks: {}{}",
        lost.size(), printable(fmt::to_string(fmt::join(std::span(lost).first(shown), ", "))),
        shown < lost.size() ? ", …" : ""));
    if (module == nullptr || module->kind != Kind::kDict)
        notes_.emplace_back(
            "a pipeline's frozen parameters, if it has any, are not in a universal checkpoint: "
            "import the checkpoint that ds_to_universal.py converted");
}

// Compares the weights with the rounded weights in the model's file. Does nothing if this file has
// no weights or only parts of them.
void UniversalSource::check_weights() const {
    const TorchFile& file = *models_.front();
    if (stage_ == 3 || !others_.empty()) return;
    const PickleValue* module = file.root().find("module");
    for (size_t i = 0; module != nullptr && i + 1 < module->items.size(); i += 2) {
        const std::string& name = module->items[i]->text;
        const auto at = place_of_trained(name);
        if (at && !about_.states.empty() &&
            !has_weights(*at, file.tensor(module->items[i + 1], name),
                         rules_->vocabulary_rows(name) >= 0))
            refuse(file.path(),
                   "its `{}` differs from the weights in zero/{}/fp32.pt, rounded to the same "
                   "type: files from different saves are mixed, or the module was changed before "
                   "it was saved",
                   name, name);
    }
}

}  // namespace dslaunch::storage
