// Reads stage 0, where one file contains the whole module and the whole optimizer. The optimizer
// numbers its parameters but does not name them, so that each must be identified by the place of
// its weights, or by shapes and values.
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "storage/export/floats.h"
#include "storage/foreign/deepspeed_source.h"
#include "storage/foreign/position_match.h"

namespace dslaunch::storage {
namespace {

using Kind = PickleValue::Kind;

}  // namespace

void DeepSpeedSource::place_replicated() {
    const TorchFile& file = *models_.front();
    const std::vector<WholeParameter> parameters = whole_parameters();
    const PickleValue* state = file.root().find("optimizer");
    RankGroups rank;
    if (state != nullptr && state->kind != Kind::kNone) rank = read_replicated(file, *state);
    // The module stores all fp32 weights, trained or not.
    const auto has_masters = [](const auto& group) { return !group[0].empty(); };
    if (options_.weights_alone && !std::ranges::any_of(rank.groups, has_masters))
        return place_weights(parameters);
    const auto has_states = [](const auto& group) { return !group[1].empty(); };
    if (std::ranges::any_of(rank.groups, has_states)) {
        about_.states = {"exp_avg", "exp_avg_sq"};
        about_.optimizer = "adam";
    } else if (!rank.groups.empty() && about_.training.updates > 0) {
        refuse(file.path(),
               "its optimizer has no exp_avg and exp_avg_sq: only Adam's states are supported");
    } else {
        notes_.emplace_back(rank.groups.empty()
                                ? "it was saved without an optimizer"
                                : "it was saved before the first step and has no optimizer states");
    }
    if (about_.states.empty()) return place_weights(parameters);
    if (state->find("fp32_groups_flat") != nullptr)
        place_flat(parameters, rank);
    else
        place_each(parameters, rank);
}

bool DeepSpeedSource::is_frozen(const std::string& name) const {
    return std::ranges::any_of(options_.frozen, [&](const std::string& glob) {
        return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
    });
}

void DeepSpeedSource::place_weights(const std::vector<WholeParameter>& parameters) {
    for (const WholeParameter& one : parameters) {
        CheckpointTensor tensor;
        tensor.name = one.name;
        tensor.dtype = one.tensor.dtype;
        tensor.shape = one.tensor.shape;
        add(std::move(tensor), {Chunks{one.tensor.bytes}});
    }
}

// Returns the tensors that are trained or may be trained. A tensor with several names is returned
// once.
std::vector<DeepSpeedSource::WholeParameter> DeepSpeedSource::whole_parameters() {
    const TorchFile& file = *models_.front();
    std::set<std::string> buffers;
    for (const PickleValue* name : need(file, file.root(), "buffer_names").items)
        buffers.insert(name->text);
    std::vector<WholeParameter> parameters;
    std::map<std::tuple<std::string, int64_t, std::vector<int64_t>>, std::string> first;
    const auto& module = need(file, file.root(), "module").items;
    for (size_t i = 0; i + 1 < module.size(); i += 2) {
        const std::string& name = module[i]->text;
        if (buffers.contains(name) || is_frozen(name)) continue;
        const TorchTensor tensor = file.tensor(module[i + 1], name);
        const auto [same, is_new] =
            first.try_emplace({tensor.storage, tensor.begin, tensor.shape}, name);
        if (is_new || tensor.numel() == 0)
            parameters.push_back({name, tensor});
        else
            aliases_.emplace_back(name, same->second);
    }
    return parameters;
}

// Reads the groups of an optimizer at stage 0. FP16_Optimizer, which is also used for bf16, has
// flat groups. For FP16_UnfusedOptimizer, makes one group for each parameter, with master weights.
// For other optimizers, groups have no master weights, because the module's own weights are fp32.
DeepSpeedSource::RankGroups DeepSpeedSource::read_replicated(const TorchFile& file,
                                                             const PickleValue& state) const {
    RankGroups rank;
    const auto add_master = [&](const PickleValue* value) {
        const TorchTensor master = file.tensor(value, "its fp32 weights");
        if (master.dtype != DType::kF32) refuse(file.path(), "its master weights are not fp32");
        rank.groups.push_back({master.bytes, {}, {}});
    };
    const PickleValue* flat = state.find("fp32_groups_flat");
    const PickleValue* each = state.find("fp32_groups");
    if (flat != nullptr) {
        for (const PickleValue* value : flat->items) add_master(value);
    } else if (each != nullptr) {
        for (const PickleValue* group : each->items)
            for (const PickleValue* value : group->items) add_master(value);
    } else {
        for (const PickleValue* group : need(file, state, "param_groups").items)
            rank.groups.resize(rank.groups.size() + need(file, *group, "params").items.size());
    }
    const bool wrapped = flat != nullptr || each != nullptr;
    const PickleValue& inner = wrapped ? need(file, state, "optimizer_state_dict") : state;
    read_states(file, inner, rank);
    // DeepSpeed's FusedAdam may count the steps of a group in only one of its parameters.
    size_t begin = 0;
    for (size_t i = 0; i < rank.sizes.size(); ++i) {
        const auto updates =
            std::span(rank.updates).subspan(begin, static_cast<size_t>(rank.sizes[i]));
        begin += updates.size();
        if (need(file, inner, "param_groups").items[i]->find("step") != nullptr && !updates.empty())
            std::ranges::fill(updates, std::ranges::max(updates));
    }
    return rank;
}

// Assigns parameters to flat groups: the weights of a group are views of one storage that has as
// many elements as the group's masters.
void DeepSpeedSource::place_flat(const std::vector<WholeParameter>& parameters,
                                 const RankGroups& rank) {
    std::set<std::string> placed;
    for (size_t group = 0; group < rank.groups.size(); ++group) {
        std::map<std::string, std::vector<WholeParameter>> storages;
        for (const WholeParameter& one : parameters)
            if (is_half(one.tensor.dtype) && !placed.contains(one.tensor.storage) &&
                one.tensor.storage_numel * kMasterBytes == std::ssize(rank.groups[group][0]))
                storages[one.tensor.storage].push_back(one);
        std::erase_if(storages, [&](const auto& storage) {
            return !std::ranges::all_of(storage.second, [&](const WholeParameter& one) {
                return rounds_to(
                    slice({rank.groups[group][0]}, {one.tensor.begin, one.tensor.numel()}),
                    one.tensor);
            });
        });
        if (storages.size() != 1)
            refuse(models_.front()->path(),
                   "group {}: its weights are in {} of the module's flat groups, expected exactly "
                   "one: the files were changed, or are from different saves",
                   group, storages.size());
        placed.insert(storages.begin()->first);
        place_flat_group(storages.begin()->second, rank, group);
    }
}

void DeepSpeedSource::place_flat_group(const std::vector<WholeParameter>& parameters,
                                       const RankGroups& rank, size_t group) {
    std::vector<WholeParameter> in_order = parameters;
    std::ranges::sort(in_order, {}, [](const WholeParameter& one) { return one.tensor.begin; });
    int64_t at = 0;
    for (const WholeParameter& one : in_order) {
        if (one.tensor.begin != at)
            refuse(models_.front()->path(),
                   "`{}` is at element {} of its group, expected element {}", one.name,
                   one.tensor.begin, at);
        CheckpointTensor tensor;
        tensor.name = one.name;
        tensor.shape = one.tensor.shape;
        tensor.updates = rank.updates[group];
        TensorChunks chunks;
        for (size_t k = 0; k < rank.groups[group].size(); ++k)
            chunks[k] = slice({rank.groups[group][k]}, {at, one.tensor.numel()});
        at += one.tensor.numel();
        add(std::move(tensor), std::move(chunks));
    }
    if (at * kMasterBytes != std::ssize(rank.groups[group][0]))
        refuse(models_.front()->path(),
               "group {}: its parameters have {} elements, but the group has {}", group, at,
               std::ssize(rank.groups[group][0]) / kMasterBytes);
}

void DeepSpeedSource::place_each(const std::vector<WholeParameter>& parameters,
                                 const RankGroups& rank) {
    const auto fits = [&](int64_t position, int64_t parameter) {
        const auto& group = rank.groups[position];
        const TorchTensor& tensor = parameters[parameter].tensor;
        if (group[1].empty()) return PositionFit::kBlank;
        const bool fit =
            rank.shapes[position] == tensor.shape &&
            (group[0].empty() ? tensor.dtype == DType::kF32 : rounds_to({group[0]}, tensor));
        return fit ? PositionFit::kYes : PositionFit::kNo;
    };
    const PositionMatch match = match_positions(rank.sizes, std::ssize(parameters), fits);
    if (!match.fault.empty())
        refuse(models_.front()->path(),
               "its optimizer does not name its {} parameters, and they cannot be matched to the "
               "{} parameters of the module by order, shape and value: {}. Name the parameters "
               "that are not trained (--frozen), or import only the weights, as safetensors",
               rank.groups.size(), parameters.size(), match.fault);
    for (size_t position = 0; position < match.parameters.size(); ++position) {
        if (match.parameters[position] < 0) continue;
        const WholeParameter& one = parameters[match.parameters[position]];
        CheckpointTensor tensor;
        tensor.name = one.name;
        tensor.shape = one.tensor.shape;
        tensor.updates = rank.updates[position];
        TensorChunks chunks;
        for (size_t k = 0; k < rank.groups[position].size(); ++k)
            chunks[k] = {rank.groups[position][k]};
        if (rank.groups[position][0].empty()) chunks[0] = {one.tensor.bytes};
        add(std::move(tensor), std::move(chunks));
    }
}

}  // namespace dslaunch::storage
