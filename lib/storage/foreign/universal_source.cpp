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

// The states of an optimizer, in the order of ours.
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
               "has no *mp_rank_00_model_states.pt: steps and buffers are in it, so that the "
               "universal checkpoint is incomplete");
    for (size_t rank = 0; rank < names.size(); ++rank) {
        // The ranks are numbered without leading zeros, so that names are not in their order.
        const std::string name = fmt::format("zero_pp_rank_{}_mp_rank_00_model_states.pt", rank);
        const bool by_rank = names.front().starts_with("zero_pp_rank_");
        models_.push_back(std::make_unique<TorchFile>(
            fmt::format("{}/{}", folder_, by_rank ? name : names[rank])));
        check_same_model(*models_.back(), *models_.front());
    }
}

// Reads the stage, the loss scale, and the count of updates of a checkpoint of stage 3.
void UniversalSource::read_optimizer() {
    const TorchFile& file =
        *files_.emplace_back(std::make_unique<TorchFile>(folder_ + "/zero/optimizer_state.pt"));
    const PickleValue& state = file.root();
    read_scaler(state);
    stage_ = 1;  // BF16_Optimizer does not say so
    if (const PickleValue* stage = state.find("zero_stage")) {
        if (stage->kind == Kind::kRecord && !stage->items[0]->items.empty())
            stage = stage->items[0]->items[0];
        stage_ = integer_or(stage, -1);
    }
    if (stage_ < 1 || stage_ > 3) refuse(file.path(), "ZeRO stage {} is not supported", stage_);
    const PickleValue* inner = state.find("optimizer_state_dict");
    const PickleValue* states = inner == nullptr ? nullptr : inner->find("state");
    for (size_t i = 0; states != nullptr && i + 1 < states->items.size(); i += 2)
        optimizer_updates_ =
            std::max(optimizer_updates_, updates_of(file, states->items[i + 1]->find("step")));
}

void UniversalSource::find_parameters() {
    const TorchFile& file = *models_.front();
    const PickleValue& model = file.root();
    for (const PickleValue* name : need(file, model, "buffer_names").items)
        untrained_.insert(name->text);
    if (const PickleValue* pairs = model.find("shared_params"))
        for (size_t i = 0; i + 1 < pairs->items.size(); i += 2)
            untrained_.insert(pairs->items[i]->text);
    if (const PickleValue* groups = model.find("param_shapes")) {
        std::vector<const PickleValue*> dicts = groups->items;
        if (groups->kind == Kind::kDict) dicts = {groups};
        for (const PickleValue* group : dicts)
            for (size_t i = 0; i + 1 < group->items.size(); i += 2)
                if (const auto shape = shape_of(*group->items[i + 1]))
                    shapes_[group->items[i]->text] = *shape;
    }
    const std::string zero = folder_ + "/zero";
    for (const std::string& name :
         names_in(zero, [](const fs::directory_entry& entry) { return entry.is_directory(); })) {
        Files files;
        const std::string folder = fmt::format("{}/{}", zero, name);
        for (const std::string& entry : names_in(folder, [](const fs::directory_entry& each) {
                 return each.path().extension() == ".pt";
             }))
            files[entry.substr(0, entry.size() - 3)] = fmt::format("{}/{}", folder, entry);
        if (!files.contains(kWeightsFile)) refuse(folder, "has no fp32.pt, its weights");
        const bool has_states = files.size() > 1;
        if (untrained_.contains(name) || !(has_states || shapes_.contains(name))) continue;
        parameters_[name] = std::move(files);
    }
    for (const auto& [name, shape] : shapes_)
        if (!parameters_.contains(name) && !untrained_.contains(name))
            refuse(zero, "has no folder of `{}`, which is trained: the checkpoint is incomplete",
                   name);
}

// Determines the optimizer by the files of the first parameter that has states. Others have the
// same files, or none if they never had a gradient.
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

// Returns the tensor in PATH: by itself, or with notes on how it was put together.
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
    if (step == files.end()) return optimizer_updates_;
    const TorchFile& file = *files_.emplace_back(std::make_unique<TorchFile>(step->second));
    return updates_of(file, &file.root());
}

void UniversalSource::add_parameter(const std::string& name, const Files& files) {
    const TorchTensor weights = value_in(files.at(kWeightsFile), name);
    CheckpointTensor tensor;
    tensor.name = name;
    tensor.shape = weights.shape;
    // Stage 3's are flat.
    const auto known = shapes_.find(name);
    if (known != shapes_.end() && weights.shape.size() == 1 &&
        numel_of(known->second) == weights.numel())
        tensor.shape = known->second;
    else if (known != shapes_.end() && stage_ == 3)
        refuse(files.at(kWeightsFile), "has {} elements, but `{}` has {}", weights.numel(), name,
               numel_of(known->second));
    TensorChunks chunks = {Chunks{weights.bytes}};
    const bool has_states = files.size() > 1;
    tensor.updates = has_states ? updates_in(files) : 0;
    // One more than the run's: FP16_Optimizer counts an update of zeros before the first.
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

// Refuses frozen parameters of a model that was split among tensor ranks: only parts of them are
// there.
void UniversalSource::refuse_split_others() const {
    std::error_code error;
    if (!fs::exists(folder_ + "/mp_rank_01_model_states.pt", error)) return;
    const PickleValue* module = models_.front()->root().find("module");
    for (size_t i = 0; module != nullptr && i + 1 < module->items.size(); i += 2) {
        const std::string& name = module->items[i]->text;
        if (!places_.contains(name) && !untrained_.contains(name))
            refuse(models_.front()->path(),
                   "the frozen parameter `{}` of a model with several model ranks is not whole in "
                   "a universal checkpoint: import the checkpoint from which it was made",
                   name);
    }
}

// Compares the weights with the model's, which are rounded, if the model's file has them whole.
void UniversalSource::check_weights() const {
    std::error_code error;
    const TorchFile& file = *models_.front();
    if (stage_ == 3 || fs::exists(folder_ + "/mp_rank_01_model_states.pt", error)) return;
    const PickleValue* module = file.root().find("module");
    for (size_t i = 0; module != nullptr && i + 1 < module->items.size(); i += 2) {
        const std::string& name = module->items[i]->text;
        const auto place = places_.find(name);
        if (place == places_.end()) continue;
        const auto at = static_cast<size_t>(place->second);
        if (about_.tensors[at].kind != TensorKind::kTrained || about_.states.empty()) continue;
        if (!rounds_to(chunks_[at][0], file.tensor(module->items[i + 1], name)))
            refuse(file.path(),
                   "its `{}` does not match the rounded weights in zero/{}/fp32.pt: files from "
                   "different saves are mixed, or the module was changed before it was saved",
                   name, name);
    }
}

}  // namespace dslaunch::storage
