// Resolves ZeRO: the stage, and the numbers that plans at that stage need.
#include "config/resolve/resolve_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dslaunch::config {

namespace {

struct StageNumber {
    const char* name;  // a key of zero_optimization
    int64_t ZeroConfig::*field;
    // If this text is set and the user gives no value, the number is 0, because DeepSpeed's default
    // would keep most of the parameters gathered. The text explains the 0 to the user.
    const char* unless_given = nullptr;
};

constexpr std::array<StageNumber, 5> kStage3Numbers{{
    {"stage3_prefetch_bucket_size", &ZeroConfig::prefetch_bucket_numel},
    {"stage3_max_live_parameters", &ZeroConfig::live_numel_max},
    {"stage3_max_reuse_distance", &ZeroConfig::reuse_distance_numel_max,
     "0: parameters are gathered again for backward, so that a rank keeps only 1 / N of them"},
    {"stage3_param_persistence_threshold", &ZeroConfig::persistent_parameter_numel,
     "0: small parameters are gathered together with their bucket"},
    {"stage3_model_persistence_threshold", &ZeroConfig::persistent_numel_max},
}};

constexpr const char* kReduce = "dslaunch.communication.reduce";

void stage_3_numbers(KeyReader& keys, RunConfig& run) {
    ZeroConfig& zero = run.zero;
    for (const StageNumber& number : kStage3Numbers) {
        const std::string path = fmt::format("zero_optimization.{}", number.name);
        if (zero.stage == 3 && number.unless_given != nullptr && !keys.has(path)) {
            zero.*number.field = 0;
            keys.derive(path, make_value(int64_t{0}), number.unless_given);
        } else if (zero.stage == 3) {
            zero.*number.field = keys.take_integer(path);
        } else {
            keys.unread(path, "used only at ZeRO stage 3");
        }
    }
}

// Selects a sharding in which each tensor has one owner, for optimizers that update whole tensors.
void shard_whole_tensors(KeyReader& keys, RunConfig& run, const std::string& path) {
    const std::string reason = fmt::format("{} updates whole tensors", keys.optimizer_name());
    const Value* const value = keys.given(path);
    run.zero.shard = ShardBy::kParameter;
    if (value == nullptr || value->text == "auto")
        return keys.derive(path, make_value(std::string(shard_by_name(ShardBy::kParameter))),
                           reason);
    keys.record(path, *value, value->origin);
    const auto kind = shard_by_from_name(value->text);
    if (!kind) return;
    run.zero.shard = *kind;
    if (*kind == ShardBy::kFlat || *kind == ShardBy::kRow)
        keys.problem(path, fmt::format("`{}` cuts tensors, but {}: use parameter, group or layer",
                                       value->text, reason));
}

void shard_kind(KeyReader& keys, RunConfig& run) {
    const std::string path = "dslaunch.shard";
    if (run.zero.stage == 0) return keys.unread(path, "used only at ZeRO stages 1 to 3");
    if (run.optimizer.needs_whole_tensors()) return shard_whole_tensors(keys, run, path);
    // If the word is not a kind of shard, the check against the schema has reported it already.
    const std::string word = keys.take_text(path);
    if (const auto kind = shard_by_from_name(word)) run.zero.shard = *kind;
    run.zero.shard_auto = word == "auto";
}

// Decides when gradients are reduced. Stages 2 and 3 keep only a rank's shard of the gradients, so
// each micro step must reduce them.
void reduce_when(KeyReader& keys, RunConfig& run) {
    ReduceWhen& reduce = run.reduce;
    const int64_t stage = run.zero.stage;
    if (stage < 2) {
        reduce =
            keys.take_text(kReduce) == "micro_step" ? ReduceWhen::kMicroStep : ReduceWhen::kOnce;
        return;
    }
    reduce = ReduceWhen::kMicroStep;
    const Value* value = keys.given(kReduce);
    if (value == nullptr)
        return keys.derive(kReduce, make_value(std::string("micro_step")),
                           "always at ZeRO stages 2 and 3");
    if (value->text == "once") {
        keys.problem(
            kReduce,
            fmt::format("`once` keeps whole gradients until the last micro step, but ZeRO stage {} "
                        "shards gradients at each micro step: remove the key, or use stage 1",
                        stage));
    }
    keys.record(kReduce, *value, value->origin);
}

}  // namespace

void resolve_zero(KeyReader& keys, RunConfig& run) {
    ZeroConfig& zero = run.zero;
    zero.stage = keys.take_integer("zero_optimization.stage");
    // At stage 0, each host would round its own copy of the values. The copies would then differ,
    // because hosts divide them into different blocks.
    const char* const wants_shards =
        "needs ZeRO stage 1 or higher: at stage 0 each host would round its own copy";
    if (zero.stage == 0 && run.states != MomentFormat::kFp32)
        keys.problem("dslaunch.optimizer.states", wants_shards);
    if (zero.stage == 0 && !run.precision.master_copies)
        keys.problem("bf16.bf16_master_weights_and_grads", wants_shards);
    zero.reduce_bucket_numel = keys.take_integer("zero_optimization.reduce_bucket_size");
    const std::string group = "zero_optimization.mics_shard_size";
    if (zero.stage == 0) {
        keys.unread(group, "nothing is sharded at ZeRO stage 0");
    } else {
        const int64_t ranks = keys.take_integer(group);
        if (ranks == 0 || ranks < -1) keys.problem(group, "must be a number of ranks, or -1");
        zero.shard_ranks = std::max<int64_t>(0, ranks);
    }
    stage_3_numbers(keys, run);
    shard_kind(keys, run);
    reduce_when(keys, run);
}

}  // namespace dslaunch::config
