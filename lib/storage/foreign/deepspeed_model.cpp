#include "storage/foreign/deepspeed_model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"

namespace dslaunch::storage {
namespace {

using Kind = PickleValue::Kind;

constexpr int64_t kChunkBytes = int64_t{1} << 20;

}  // namespace

void DeepSpeedModel::read_counts() {
    const TorchFile& file = *models_.front();
    const PickleValue& model = file.root();
    TrainingState& training = about_.training;
    training.step = integer_or(&need(file, model, "global_steps"), -1);
    training.updates = training.step - integer_or(model.find("skipped_steps"), 0);
    training.samples_seen = integer_or(model.find("global_samples"), 0);
    if (training.step < 0 || training.updates < 0 || training.samples_seen < 0)
        refuse(file.path(), "its counts of steps and samples are impossible");
    if (const PickleValue* version = model.find("ds_version")) about_.version = version->text;
    const PickleValue* scheduler = model.find("lr_scheduler");
    const int64_t last =
        scheduler == nullptr ? -2 : integer_or(scheduler->find("last_batch_iteration"), -2);
    if (last >= -1 && last + 1 != training.updates)
        notes_.push_back(
            fmt::format("its learning-rate scheduler is at update {0}, but {1} updates were made: "
                        "the schedule continues from update {1}",
                        last + 1, training.updates));
}

void DeepSpeedModel::read_scaler(const PickleValue& optimizer) {
    const PickleValue* scaler = optimizer.find("loss_scaler");
    if (scaler != nullptr && scaler->kind == Kind::kRecord && scaler->items.size() >= 2)
        read_loss_scale(*scaler->items[1]);
}

void DeepSpeedModel::read_loss_scale(const PickleValue& kept) {
    TrainingState& training = about_.training;
    if (kept.find("cur_scale") == nullptr) return;
    if (const PickleValue* scale = kept.find("cur_scale"))
        training.loss_scale =
            scale->kind == Kind::kReal ? scale->real : static_cast<double>(scale->integer);
    training.scale_steps = integer_or(kept.find("cur_iter"), 0);
    // last_overflow_iter is -1 before the first overflow. DeepSpeed counts clean steps from the
    // step after the last overflow.
    const int64_t overflow = integer_or(kept.find("last_overflow_iter"), -1);
    training.scale_good_steps = std::max<int64_t>(training.scale_steps - overflow - 1, 0);
    training.scale_hysteresis_left = integer_or(kept.find("cur_hysteresis"), 1);
}

void DeepSpeedModel::add_trained(const std::string& name, const PickleValue& shape,
                                 int64_t updates) {
    const auto sizes = shape_of(shape);
    if (!sizes) refuse(listed_in(), "the parameter `{}` has no shape", name);
    CheckpointTensor tensor;
    tensor.name = name;
    tensor.shape = *sizes;
    tensor.updates = updates;
    add(std::move(tensor), {});
}

void DeepSpeedModel::add_others() {
    const TorchFile& file = *models_.front();
    const PickleValue& model = file.root();
    std::set<std::string> buffers, shared;
    for (const PickleValue* name : need(file, model, "buffer_names").items)
        buffers.insert(name->text);
    if (const PickleValue* pairs = model.find("shared_params"))
        for (size_t i = 0; i + 1 < pairs->items.size(); i += 2)
            aliases_.emplace_back(pairs->items[i]->text, pairs->items[i + 1]->text);
    for (const auto& [alias, name] : aliases_) shared.insert(alias);
    const auto& module = need(file, model, "module").items;
    for (size_t i = 0; i + 1 < module.size(); i += 2) {
        const std::string& name = module[i]->text;
        if (places_.contains(name) || shared.contains(name)) continue;
        if (!buffers.contains(name)) {
            add_frozen(name, *module[i + 1]);
            continue;
        }
        add_buffer(name, file.tensor(module[i + 1], name));
    }
}

void DeepSpeedModel::add_buffer(const std::string& name, const TorchTensor& found) {
    CheckpointTensor tensor;
    tensor.name = name;
    tensor.kind = TensorKind::kBuffer;
    tensor.dtype = found.dtype;
    tensor.shape = found.shape;
    add(std::move(tensor), {Chunks{found.bytes}});
}

// Adds a frozen parameter: at stage 3 from the ranks' fragments, else the parameter itself.
void DeepSpeedModel::add_frozen(const std::string& name, const PickleValue& value) {
    CheckpointTensor tensor;
    tensor.name = name;
    tensor.kind = TensorKind::kFrozen;
    if (stage_ < 3) {
        const TorchTensor found = models_.front()->tensor(&value, name);
        tensor.dtype = found.dtype;
        tensor.shape = found.shape;
        add(std::move(tensor), {Chunks{found.bytes}});
        return;
    }
    const PickleValue* shapes = models_.front()->root().find("frozen_param_shapes");
    const PickleValue* shape = shapes == nullptr ? nullptr : shapes->find(name);
    const auto sizes = shape == nullptr ? std::nullopt : shape_of(*shape);
    if (!sizes)
        refuse(models_.front()->path(), "`{}` is listed as neither trained nor frozen", name);
    tensor.shape = *sizes;
    Chunks chunks;
    int64_t left = numel_of(*sizes);
    for (const auto& file : models_) {
        const TorchTensor part =
            file->tensor(need(*file, file->root(), "frozen_param_fragments").find(name), name);
        const int64_t numel = std::min(part.numel(), left);
        tensor.dtype = part.dtype;
        chunks.push_back(part.bytes.first(static_cast<size_t>(numel * dtype_bytes(part.dtype))));
        left -= numel;
    }
    if (left != 0) refuse(folder_, "`{}`: the ranks' fragments lack {} elements", name, left);
    add(std::move(tensor), {std::move(chunks)});
}

void DeepSpeedModel::add_aliases() {
    for (const auto& [alias, name] : aliases_) {
        const auto found = places_.find(name);
        if (found == places_.end() || !places_.emplace(alias, found->second).second)
            refuse(listed_in(), "`{}` shares the values of `{}`, which is missing", alias, name);
        about_.tensors[found->second].aliases.push_back(alias);
    }
}

void DeepSpeedModel::add(CheckpointTensor tensor, TensorChunks chunks) {
    if (tensor.name.empty() ||
        !places_.emplace(tensor.name, static_cast<int>(about_.tensors.size())).second)
        refuse(listed_in(), "`{}` appears twice or has no name", tensor.name);
    about_.tensors.push_back(std::move(tensor));
    chunks_.push_back(std::move(chunks));
}

void DeepSpeedModel::for_each(int tensor, int state, const Range& elements, const Use& use) const {
    const CheckpointTensor& about = about_.tensors.at(static_cast<size_t>(tensor));
    const int64_t width = dtype_bytes(dtype_of(about, state));
    Range here{0, 0};
    for (const std::span<const std::byte>& chunk : chunks_.at(tensor).at(state + 1)) {
        here = {here.end(), std::ssize(chunk) / width};
        const Range wanted = intersect(here, elements);
        for (int64_t begin = wanted.begin; begin < wanted.end(); begin += kChunkBytes / width) {
            const Range part{begin, std::min(kChunkBytes / width, wanted.end() - begin)};
            use(part, chunk.subspan(static_cast<size_t>((part.begin - here.begin) * width),
                                    static_cast<size_t>(part.numel * width)));
        }
    }
}

bool DeepSpeedModel::has_weights(size_t at, TorchTensor tensor, bool is_padded) const {
    const auto bytes = static_cast<size_t>(about_.tensors[at].numel() * dtype_bytes(tensor.dtype));
    if (is_padded) tensor.bytes = tensor.bytes.first(std::min(tensor.bytes.size(), bytes));
    return rounds_to(chunks_[at][0], tensor);
}

std::optional<size_t> DeepSpeedModel::place_of_trained(const std::string& name) const {
    const auto place = places_.find(name);
    if (place == places_.end()) return std::nullopt;
    const auto at = static_cast<size_t>(place->second);
    return about_.tensors[at].kind == TensorKind::kTrained ? std::optional(at) : std::nullopt;
}

}  // namespace dslaunch::storage
