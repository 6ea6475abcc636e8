// The run config's ZeRO: the stage and the numbers that plans at that stage need.
#include "config/resolve/resolver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dslaunch::config {

namespace {

struct StageNumber {
    const char* name;  // a key of zero_optimization
    int64_t ZeroConfig::*field;
    // The number is 0 unless it is given, for this reason, where DeepSpeed's default would keep
    // most models whole.
    const char* unless_given = nullptr;
};

constexpr std::array<StageNumber, 5> kStage3Numbers{{
    {"stage3_prefetch_bucket_size", &ZeroConfig::prefetch_bucket_numel},
    {"stage3_max_live_parameters", &ZeroConfig::live_numel_max},
    {"stage3_max_reuse_distance", &ZeroConfig::reuse_distance_numel_max,
     "0, parameters are gathered again for backward, so that a rank holds 1 / N of them"},
    {"stage3_param_persistence_threshold", &ZeroConfig::persistent_parameter_numel,
     "0, small parameters come with the bucket that they lie in and need no gather of their own"},
    {"stage3_model_persistence_threshold", &ZeroConfig::persistent_numel_max},
}};

constexpr const char* kReduce = "dslaunch.communication.reduce";

}  // namespace

void Resolver::zero() {
    ZeroConfig& zero = run_config().zero;
    zero.stage = take_integer("zero_optimization.stage");
    // Every host rounds its own copy there, and hosts cut it into other pieces.
    const char* const wants_shards =
        "wants ZeRO stage 1 or more: at stage 0 each host would round its own copy";
    if (zero.stage == 0 && run_config().states != MomentFormat::kFp32)
        problem("dslaunch.optimizer.states", wants_shards);
    if (zero.stage == 0 && !run_config().precision.master_copies)
        problem("bf16.bf16_master_weights_and_grads", wants_shards);
    zero.reduce_bucket_numel = take_integer("zero_optimization.reduce_bucket_size");
    const std::string group = "zero_optimization.mics_shard_size";
    if (zero.stage == 0) {
        unread(group, "nothing is sharded at ZeRO stage 0");
    } else {
        const int64_t ranks = take_integer(group);
        if (ranks == 0 || ranks < -1) problem(group, "must be a number of ranks, or -1");
        zero.shard_ranks = std::max<int64_t>(0, ranks);
    }
    stage_3_numbers();
    shard_kind();
    reduce_when();
}

void Resolver::stage_3_numbers() {
    ZeroConfig& zero = run_config().zero;
    for (const StageNumber& number : kStage3Numbers) {
        const std::string path = fmt::format("zero_optimization.{}", number.name);
        if (zero.stage == 3 && number.unless_given != nullptr && given(path) == nullptr) {
            zero.*number.field = 0;
            derive(path, make_value(int64_t{0}), number.unless_given);
        } else if (zero.stage == 3) {
            zero.*number.field = take_integer(path);
        } else {
            unread(path, "read only at ZeRO stage 3");
        }
    }
}

void Resolver::shard_kind() {
    const std::string path = "dslaunch.shard";
    if (run_config().zero.stage == 0) return unread(path, "read only at ZeRO stages 1 to 3");
    if (run_config().optimizer.needs_whole_tensors()) return shard_whole_tensors(path);
    // A word that is no kind has been reported by the schema's check.
    const std::string word = take_text(path);
    if (const auto kind = shard_by_from_name(word)) run_config().zero.shard = *kind;
    run_config().zero.shard_auto = word == "auto";
}

// The owner of a tensor has all of it.
void Resolver::shard_whole_tensors(const std::string& path) {
    const std::string reason =
        fmt::format("{} updates whole tensors", find_path(root_, "optimizer.type")->text);
    const Value* const value = given(path);
    run_config().zero.shard = ShardBy::kParameter;
    if (value == nullptr || value->text == "auto")
        return derive(path, make_value(std::string(shard_by_name(ShardBy::kParameter))), reason);
    record(path, *value, value->origin);
    const auto kind = shard_by_from_name(value->text);
    if (!kind) return;
    run_config().zero.shard = *kind;
    if (*kind == ShardBy::kFlat || *kind == ShardBy::kRow)
        problem(path, fmt::format("`{}` cuts tensors, and {}: use parameter, group or layer",
                                  value->text, reason));
}

// Stages 2 and 3 keep only a rank's shard of the gradients, so that each micro step must be
// reduced.
void Resolver::reduce_when() {
    ReduceWhen& reduce = run_config().reduce;
    const int64_t stage = run_config().zero.stage;
    if (stage < 2) {
        reduce = take_text(kReduce) == "micro_step" ? ReduceWhen::kMicroStep : ReduceWhen::kOnce;
        return;
    }
    reduce = ReduceWhen::kMicroStep;
    const Value* value = given(kReduce);
    if (value == nullptr)
        return derive(kReduce, make_value(std::string("micro_step")),
                      "always at ZeRO stages 2 and 3");
    if (value->text == "once") {
        problem(kReduce,
                fmt::format("`once` keeps whole gradients until the last micro step, which ZeRO "
                            "stage {} does not: remove the key, or use stage 1",
                            stage));
    }
    record(kReduce, *value, value->origin);
}

}  // namespace dslaunch::config
