#include "plan/step/reduce_and_update.h"

#include <fmt/core.h>

#include "base/check.h"
#include "plan/step/reduce_order.h"

namespace dslaunch::plan {

Instruction& ReduceAndUpdate::add(Op op, Lane lane, int b, int m) {
    Instruction& made = plan_.instructions.emplace_back();
    made.op = op;
    made.lane = lane;
    made.bucket = b;
    made.micro_step = m;
    return made;
}

int ReduceAndUpdate::gradients(int b) const {
    const auto i = static_cast<size_t>(b);
    return options_.stage < 2 ? kept_.gradients[i]
                              : kept_.gradient_buffers[plan_.gradient_buffer_of_bucket[i]];
}

void ReduceAndUpdate::count_gather(Instruction& gather) const {
    gather.bytes = Bytes{bucket(gather.bucket).numel * options_.parameter_bytes};
    gather.sent = links_.sent_by_gather(gather.bucket);
}

void ReduceAndUpdate::begin_step(const ModelInfo& model) {
    if (options_.lag.kind != Lag::kPartial) chunk_passes_.begin_turns();
    if (options_.lag.kind != Lag::kLate) return;
    for (const int b : update_order(model, layout_, options_)) {
        const auto i = static_cast<size_t>(b);
        for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1]; ++c)
            add_rest_update(c);
    }
}

void ReduceAndUpdate::add_rest_update(int c) {
    const int b = chunk(c).bucket;
    Instruction& update = add(Op::kUpdateRest, Lane::kUpdate, b);
    update.chunk = c;
    // The parameters that it reads are this step's until Update, which comes behind it.
    update.reads = {kept_.choice};
    update.writes = {kept_.waiting[b], kept_.moments[b]};
    chunk_passes_.join_chunk(update);
    chunk_passes_.after_chunk(c);
}

void ReduceAndUpdate::end_step(const ModelInfo& model) {
    chunk_passes_.begin_updates();
    if (options_.norm_first()) add_norm();
    if (options_.lag.selects) add_select();
    if (updates_early(options_)) return;
    for (const int b : update_order(model, layout_, options_)) add_updates(b);
}

void ReduceAndUpdate::add_reductions(int segment, int m) {
    if (!options_.reduces_each() && !last_micro_step(m)) return;
    for (int b = layout_.trained_buckets; b-- > 0;)
        if (bucket(b).ready_segment == segment && !is_tied(b)) add_reduction(b, m);
}

void ReduceAndUpdate::add_reduction(int b, int m) {
    // Slices that got no gradient are zeroed.
    add(Op::kPost, Lane::kCompute, b, m).writes = {gradients(b)};
    if (!sums_itself(options_)) {
        Instruction& reduce = add(Op::kReduce, Lane::kCommunication, b, m);
        reduce.writes = {gradients(b)};
        const int ranks =
            options_.exchange == Exchange::kExact ? options_.world_size : options_.local_world_size;
        reduce.bytes = ranks > 1 ? Bytes{bucket(b).numel * 4} : Bytes{};
        reduce.sent = links_.sent_by_reduce(b);
    }
    if (options_.keeps_reduced()) add_accumulates(b, m);
    if (updates_early(options_)) add_updates(b);
}

void ReduceAndUpdate::add_tie(const TiedParameter& tie) {
    const int slice = layout_.slice_of(tie.parameter);
    const int b = slice < 0 ? -1 : layout_.bucket_of(slice);
    DSL_CHECK(b >= 0 && is_tied(b), "parameter {} is tied, and has no bucket of its own",
              tie.parameter);
    const Bytes others{(std::ssize(tie.stages) - 1) * (bucket(b).numel + flag_numel(bucket(b))) *
                       4};
    const int m = static_cast<int>(options_.accumulation_steps) - 1;
    const auto received = static_cast<int>(plan_.buffers.size());
    plan_.buffers.push_back({fmt::format("gradients of bucket {} from other stages", b),
                             BufferKind::kGradients, Tier::kMemory, others, false});
    Instruction& sum = add(Op::kTie, Lane::kCompute, b, m);
    sum.writes = {gradients(b)};
    sum.creates = {received};
    sum.frees = {received};
    sum.bytes = others;
    add_reduction(b, m);
}

void ReduceAndUpdate::add_accumulates(int b, int m) {
    const auto i = static_cast<size_t>(b);
    for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1]; ++c) {
        chunk_passes_.before_accumulate(c);
        Instruction& accumulate = add(Op::kAccumulate, Lane::kCommunication, b, m);
        accumulate.chunk = c;
        accumulate.reads = {gradients(b)};
        if (chunk_passes_.sums_pass(c)) {
            chunk_passes_.join_accumulate(accumulate);
        } else {
            accumulate.writes = {kept_.reduced[i]};
        }
        // The squares for the norm are summed while the sums are in memory.
        if (options_.norm_first() && last_micro_step(m)) accumulate.writes.push_back(kept_.norm);
        chunk_passes_.after_accumulate(c);
    }
}

// The plan buffer of the gradients that Norm and Update read.
int ReduceAndUpdate::summed(int b) const {
    return options_.keeps_reduced() ? kept_.reduced[b] : gradients(b);
}

void ReduceAndUpdate::add_norm() {
    Instruction& norm = add(Op::kNorm, Lane::kCommunication);
    for (int b = 0; b < layout_.trained_buckets; ++b) norm.reads.push_back(summed(b));
    // No rank updates before every rank's late updates have read the parameters.
    if (options_.lag.kind == Lag::kLate)
        norm.reads.insert(norm.reads.end(), kept_.waiting.begin(), kept_.waiting.end());
    norm.writes = {kept_.norm};
    norm.sent = links_.sent_by_norm();
}

void ReduceAndUpdate::add_select() {
    Instruction& select = add(Op::kSelect, Lane::kCommunication);
    for (int b = 0; b < layout_.trained_buckets; ++b) select.reads.push_back(summed(b));
    select.reads.push_back(kept_.norm);
    select.writes = {kept_.choice};
}

// The values are made of this rank's states, and the updates after it take their average.
void ReduceAndUpdate::add_exchange(int b) {
    Instruction& exchange = add(Op::kExchange, Lane::kCommunication, b);
    exchange.reads = {summed(b), kept_.norm};
    exchange.writes = {kept_.exchange, kept_.errors[b], kept_.moments[b]};
    if (options_.exchange == Exchange::kMoves) exchange.writes.push_back(kept_.parameters[b]);
    exchange.bytes = links_.sent_by_exchange_of_all(b);
    exchange.sent = links_.sent_by_exchange(b);
}

void ReduceAndUpdate::add_updates(int b) {
    const auto i = static_cast<size_t>(b);
    if (is_compressed(options_.exchange)) add_exchange(b);
    for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1]; ++c)
        add_update(c);
    if (options_.stage == 0 || !options_.shards_over_hosts() || options_.is_gathered(bucket(b)))
        return;
    Instruction& gather = add(Op::kGather, Lane::kCommunication, b);
    gather.writes = {kept_.parameters[i]};
    count_gather(gather);
}

void ReduceAndUpdate::add_update(int c) {
    const int b = chunk(c).bucket;
    const auto i = static_cast<size_t>(b);
    Instruction& update = add(Op::kUpdate, Lane::kCommunication, b);
    update.chunk = c;
    update.reads = {summed(b), kept_.norm};
    update.writes = {kept_.moments[i], kept_.parameters[i]};
    if (is_compressed(options_.exchange)) update.reads.push_back(kept_.exchange);
    if (chunk(c).last)
        update.bytes = options_.local_world_size > 1 ? Bytes{bucket(b).numel * 4} : Bytes{};
    if (options_.lag.on) {
        update.reads.push_back(kept_.choice);
        update.writes.push_back(kept_.waiting[i]);
    }
    if (options_.lag.kind != Lag::kWhole) {
        chunk_passes_.join_sums(update);
        return chunk_passes_.after_sums(c);
    }
    chunk_passes_.join_update(update);
    chunk_passes_.after_update(c);
}

}  // namespace dslaunch::plan
