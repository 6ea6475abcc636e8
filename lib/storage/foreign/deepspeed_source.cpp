#include "storage/foreign/deepspeed_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;
using Span = std::span<const std::byte>;

constexpr std::array<const char*, 2> kStates = {"exp_avg", "exp_avg_sq"};
constexpr size_t kGroupValues = 1 + kStates.size();  // a flat group's weights and states

// Returns true if the optimizer in STATE has Adam's third state, which amsgrad needs.
bool has_third_state(const PickleValue* state) {
    if (state == nullptr) return false;
    for (const PickleValue* inner :
         {state, state->find("base_optimizer_state"), state->find("optimizer_state_dict")}) {
        const PickleValue* const all = inner == nullptr ? nullptr : inner->find("state");
        for (size_t i = 0; all != nullptr && i + 1 < all->items.size(); i += 2)
            if (all->items[i + 1]->find("max_exp_avg_sq") != nullptr) return true;
    }
    return false;
}

bool exists(const std::string& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

}  // namespace

DeepSpeedSource::DeepSpeedSource(const std::string& folder, DeepSpeedOptions options)
    : options_(std::move(options)) {
    folder_ = folder;
    open();
    read_stage();
    read_training();
    if (stage_ > 0) read_groups();
    if (stage_ == 0)
        place_replicated();
    else if (stage_ == 3)
        place_sharded();
    else
        place_shared_groups();
    const TorchFile& file = optimizers_.empty() ? *models_.front() : *optimizers_.front();
    if (has_third_state(
            file.root().find(optimizers_.empty() ? "optimizer" : "optimizer_state_dict")))
        notes_.emplace_back(
            "its max_exp_avg_sq, which amsgrad needs, is not read: continue without amsgrad");
    add_others();
    add_aliases();
    check_one_save();
    writer_ = fmt::format("DeepSpeed {}, ZeRO stage {}, {} ranks", about_.version, stage_,
                          about_.world_size);
}

std::string DeepSpeedSource::file_in(int64_t rank, std::string_view prefix,
                                     std::string_view kind) const {
    return fmt::format("{}/{}zero_pp_rank_{}_mp_rank_{:02}_{}_states.pt", folder_, prefix, rank,
                       options_.model_rank, kind);
}

int DeepSpeedSource::find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? -1 : found->second;
}

void DeepSpeedSource::open() {
    std::error_code error;
    int64_t files_count = 0;
    const std::string ending = fmt::format("_mp_rank_{:02}_optim_states.pt", options_.model_rank);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error))
        files_count += entry.path().filename().string().ends_with(ending) ? 1 : 0;
    if (error) refuse(folder_, "cannot be listed: {}", error.message());
    const std::string_view prefix = exists(file_in(0, "bf16_", "optim")) ? "bf16_" : "";
    for (int64_t rank = 0; rank < files_count; ++rank) {
        const std::string name = file_in(rank, prefix, "optim");
        if (!exists(name))
            refuse(
                name,
                "is missing: the checkpoint needs a file of each of its {} ranks and is incomplete",
                files_count);
        optimizers_.push_back(std::make_unique<TorchFile>(name));
    }
    open_models();
}

void DeepSpeedSource::open_models() {
    const std::string model =
        fmt::format("{}/mp_rank_{:02}_model_states.pt", folder_, options_.model_rank);
    if (exists(model)) {
        models_.push_back(std::make_unique<TorchFile>(model));
        return;
    }
    if (optimizers_.empty())
        refuse(folder_,
               "has neither *_optim_states.pt nor mp_rank_{:02}_model_states.pt: it is not a "
               "DeepSpeed checkpoint, or the checkpoint is incomplete",
               options_.model_rank);
    for (size_t rank = 0; rank < optimizers_.size(); ++rank) {
        const std::string name = file_in(static_cast<int64_t>(rank), "", "model");
        if (!exists(name)) refuse(name, "is missing: the checkpoint is incomplete");
        models_.push_back(std::make_unique<TorchFile>(name));
    }
}

void DeepSpeedSource::read_stage() {
    about_.world_size = std::ssize(optimizers_);
    for (const auto& file : optimizers_)
        read_rank_stage(*file, need(*file, file->root(), "optimizer_state_dict"));
    if ((stage_ == 3) != (models_.size() == optimizers_.size() &&
                          models_.front()->path().find("zero_pp_rank_") != std::string::npos))
        refuse(models_.front()->path(), "does not belong to ZeRO stage {}", stage_);
    about_.zero_stage = stage_;
    if (stage_ > 0) return;
    const TorchFile& file = *models_.front();
    const PickleValue* shapes = file.root().find("param_shapes");
    if (shapes != nullptr && shapes->kind == Kind::kList)
        refuse(folder_,
               "has no *_optim_states.pt, but {} was saved with ZeRO: the ranks' files are missing",
               file.path());
    const PickleValue* module = file.root().find("module");
    if (options_.is_part && (module == nullptr || module->kind == Kind::kNone))
        refuse(file.path(),
               "was written by a pipeline at ZeRO stage 0, whose optimizer does not name its "
               "parameters: this is not supported; train with stage 1 and save again");
    about_.world_size = std::max<int64_t>(integer_or(file.root().find("dp_world_size"), 1), 1);
}

void DeepSpeedSource::read_rank_stage(const TorchFile& file, const PickleValue& state) {
    // BF16_Optimizer (bf16 with fp32 gradient accumulation) does not say its stage.
    const bool is_bf16_optimizer = state.find("group_paddings") != nullptr;
    const int64_t found = zero_stage_in(state).value_or(is_bf16_optimizer ? 1 : -1);
    if (found < 1 || found > 3) refuse(file.path(), "ZeRO stage {} is not supported", found);
    if (stage_ != 0 && found != stage_)
        refuse(file.path(), "was saved with ZeRO stage {}, but rank 0's file with stage {}", found,
               stage_);
    stage_ = found;
    const PickleValue* parts = &need(file, state, "partition_count");
    std::vector<const PickleValue*> counts = {parts};
    if (parts->kind == Kind::kList) counts = parts->items;
    for (const PickleValue* count : counts)
        if (integer_or(count, -1) != about_.world_size)
            refuse(file.path(),
                   "says that {} ranks wrote it, but there are files of {} ranks: files are "
                   "missing or come from another save, or the parameters are split in a way that "
                   "is not supported (such as experts)",
                   integer_or(count, -1), about_.world_size);
    if (state.find("ds_zero_partition_groups") != nullptr)
        refuse(file.path(), "splits its experts in separate groups, which is not supported");
}

void DeepSpeedSource::read_training() {
    const TorchFile& file = *models_.front();
    const int64_t model_ranks = integer_or(file.root().find("mp_world_size"), 1);
    if (model_ranks != 1 && !options_.is_part)
        refuse(file.path(),
               "{} model ranks wrote the checkpoint, but only the files of one rank are there: "
               "copy the files of the other ranks too",
               model_ranks);
    read_counts();
    if (stage_ == 0) {
        const PickleValue* state = file.root().find("optimizer");
        if (state != nullptr) read_loss_scale(*state);
        return;
    }
    const TorchFile& first = *optimizers_.front();
    read_scaler(need(first, first.root(), "optimizer_state_dict"));
}

void DeepSpeedSource::read_groups() {
    size_t with_states = 0, without = 0;
    for (const auto& file : optimizers_) {
        ranks_.push_back(read_rank(*file));
        if (ranks_.back().groups.size() != ranks_.front().groups.size())
            refuse(file->path(), "has {} parameter groups, but rank 0 has {}",
                   ranks_.back().groups.size(), ranks_.front().groups.size());
        for (const auto& group : ranks_.back().groups)
            ++(group[0].empty() || !group[1].empty() ? with_states : without);
    }
    if (without == 0) {
        about_.states = {kStates[0], kStates[1]};
        about_.optimizer = "adam";
    } else if (about_.training.updates > 0 || with_states > 0) {
        refuse(folder_,
               "some groups have no exp_avg and exp_avg_sq: only Adam's states are supported");
    } else {
        notes_.emplace_back("it was saved before the first step and has no optimizer states");
    }
}

DeepSpeedSource::RankGroups DeepSpeedSource::read_rank(const TorchFile& file) const {
    const PickleValue& state = need(file, file.root(), "optimizer_state_dict");
    const bool sharded = stage_ == 3;
    const PickleValue& masters =
        need(file, state, sharded ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    RankGroups rank;
    for (const PickleValue* value : masters.items) {
        const TorchTensor master = file.tensor(value, "its fp32 weights");
        if (master.dtype != DType::kF32) refuse(file.path(), "its master weights are not fp32");
        rank.groups.push_back({master.bytes, {}, {}});
    }
    read_states(file, need(file, state, sharded ? "optimizer_state_dict" : "base_optimizer_state"),
                rank);
    return rank;
}

// Reads the optimizer states. The inner optimizer has one parameter for each flat group, in the
// same order.
void DeepSpeedSource::read_states(const TorchFile& file, const PickleValue& optimizer,
                                  RankGroups& rank) const {
    if (optimizer.kind == Kind::kList)
        refuse(file.path(), "was saved with elastic_checkpoint, which is not supported");
    const PickleValue& states = need(file, optimizer, "state");
    rank.updates.resize(rank.groups.size());
    rank.shapes.resize(rank.groups.size());
    std::vector<std::pair<int64_t, int64_t>> parameters;  // id, step count of its group
    for (const PickleValue* group : need(file, optimizer, "param_groups").items) {
        const auto& ids = need(file, *group, "params").items;
        for (const PickleValue* id : ids)
            parameters.emplace_back(integer_or(id, -1), updates_of(file, group->find("step")));
        rank.sizes.push_back(std::ssize(ids));
    }
    if (parameters.size() != rank.groups.size())
        refuse(file.path(), "its optimizer has {} parameters, but {} flat groups",
               parameters.size(), rank.groups.size());
    for (size_t i = 0; i + 1 < states.items.size(); i += 2) {
        const auto found = std::ranges::find(parameters, integer_or(states.items[i], -2),
                                             &std::pair<int64_t, int64_t>::first);
        if (found == parameters.end())
            refuse(file.path(), "has optimizer states that belong to no parameter");
        const auto group = static_cast<size_t>(found - parameters.begin());
        const PickleValue& state = *states.items[i + 1];
        rank.updates[group] = std::max(updates_of(file, state.find("step")), found->second);
        for (size_t k = 0; k < kStates.size(); ++k) {
            const TorchTensor tensor = file.tensor(state.find(kStates[k]), kStates[k]);
            // Stages 1 and 2 store the states with padding for alignment, but the weights without
            // it. At stage 0, fp32 weights are stored in the module.
            const Span master = rank.groups[group][0];
            const size_t bytes =
                stage_ == 0 && master.empty() ? tensor.bytes.size() : master.size();
            if (tensor.dtype != DType::kF32 || tensor.bytes.size() < bytes)
                refuse(file.path(),
                       "{} of group {} has {} elements of type {}, but the weights of the group "
                       "have {} elements, and fp32 is expected",
                       kStates[k], group, tensor.numel(), dtype_name(tensor.dtype),
                       bytes / kMasterBytes);
            rank.groups[group][k + 1] = tensor.bytes.first(bytes);
            rank.shapes[group] = tensor.shape;
        }
    }
}

void DeepSpeedSource::place_shared_groups() {
    const TorchFile& file = *models_.front();
    const PickleValue& shapes = need(file, file.root(), "param_shapes");
    const PickleValue& first =
        need(*optimizers_.front(), optimizers_.front()->root(), "optimizer_state_dict");
    const PickleValue* paddings = first.find("param_alignment_paddings");
    if (shapes.items.size() != ranks_.front().groups.size())
        refuse(file.path(), "has the shapes of {} groups, but the ranks have {} groups",
               shapes.items.size(), ranks_.front().groups.size());
    for (size_t group = 0; group < shapes.items.size(); ++group) {
        TensorChunks whole;
        int64_t updates = 0;
        for (const RankGroups& rank : ranks_) {
            for (size_t k = 0; k < kGroupValues; ++k) whole[k].push_back(rank.groups[group][k]);
            updates = std::max(updates, rank.updates[group]);
        }
        const auto& parameters = shapes.items[group]->items;
        const PickleValue* padding = nullptr;
        if (paddings != nullptr && group < paddings->items.size()) padding = paddings->items[group];
        int64_t at = 0;
        for (size_t i = 0; i + 1 < parameters.size(); i += 2) {
            add_trained(parameters[i]->text, *parameters[i + 1], updates);
            const int64_t numel = about_.tensors.back().numel();
            for (size_t k = 0; k < whole.size(); ++k)
                chunks_.back()[k] = slice(whole[k], {at, numel});
            at += numel;
            if (padding != nullptr && i / 2 < padding->items.size())
                at += std::max<int64_t>(integer_or(padding->items[i / 2], 0), 0);
        }
        // The remaining elements are padding for alignment, fewer than twice the number of ranks.
        const int64_t left = numel_of(whole[0]) - at;
        if (left < 0 || left >= 2 * about_.world_size)
            refuse(folder_,
                   "group {}: its parameters need {} elements, but the ranks' files have {}: the "
                   "files are damaged, or from different saves",
                   group, at, numel_of(whole[0]));
    }
}

void DeepSpeedSource::place_sharded() {
    const TorchFile& file = *models_.front();
    std::vector<TensorChunks> flat(ranks_.size());  // by rank: the chunks of all groups
    int64_t updates = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
        for (size_t group = 0; group < ranks_[rank].groups.size(); ++group) {
            for (size_t k = 0; k < 3; ++k) flat[rank][k].push_back(ranks_[rank].groups[group][k]);
            updates = std::max(updates, ranks_[rank].updates[group]);
        }
    int64_t at = 0;
    for (const PickleValue* shapes : need(file, file.root(), "param_shapes").items)
        for (size_t i = 0; i + 1 < shapes->items.size(); i += 2) {
            add_trained(shapes->items[i]->text, *shapes->items[i + 1], updates);
            int64_t left = about_.tensors.back().numel();
            const int64_t share = (left + about_.world_size - 1) / about_.world_size;
            for (const auto& rank : flat) {
                const Range own{at, std::min(share, left)};
                for (size_t k = 0; k < 3; ++k) {
                    const Chunks part = slice(rank[k], own);
                    chunks_.back()[k].insert(chunks_.back()[k].end(), part.begin(), part.end());
                }
                left -= own.numel;
            }
            at += share;
        }
    for (const auto& rank : flat)
        if (numel_of(rank[0]) != at)
            refuse(folder_,
                   "the parameters need {} elements of each rank, but a rank's file has {}: the "
                   "files are damaged, or from different saves",
                   at, numel_of(rank[0]));
}

}  // namespace dslaunch::storage
