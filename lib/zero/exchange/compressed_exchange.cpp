#include "zero/exchange/compressed_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/one_bit.h"

namespace dslaunch::zero {

namespace {

constexpr const char* kServerError = "server_error";

std::string worker_error(int node) {
    return fmt::format("worker_error.{}", node);
}

}  // namespace

ExchangeSlices CompressedExchange::add_slices(const plan::FlatLayout& layout,
                                              runtime::ArenaLayout& arena) {
    int64_t numel = 0;
    for (int b = 0; b < layout.trained_buckets; ++b)
        numel = std::max(numel, layout.buckets[b].numel);
    return {arena.add_shared("values that hosts exchange", Bytes{numel * 4}),
            arena.add_signal("values to exchange"), arena.add_signal("averaged values"),
            arena.add_signal("averages taken")};
}

CompressedExchange::CompressedExchange(const ShardMap& map, const ExchangeSlices& slices,
                                       const runtime::Arena& arena, runtime::HostGroup& group,
                                       runtime::Collectives& collectives)
    : map_(map),
      slices_(slices),
      arena_(arena),
      group_(group),
      collectives_(collectives),
      out_(static_cast<size_t>(map.topology().node_count())),
      in_(out_.size()) {
    DSL_CHECK(map.several_hosts() && map.copies_on_hosts(),
              "compression needs several hosts, each with a full copy of the parameters; there are "
              "{} hosts",
              nodes());
    const int bridges = map.topology().bridge_count();
    if (!map.topology().is_bridge()) return;
    for (int b = 0; b < map.layout().trained_buckets; ++b) {
        plan::SignRuns runs(map.layout(), b, nodes(), bridges);
        const int64_t worker = plan::numel_of(runs.of_bridge(bridge()));
        const int64_t server = plan::numel_of(runs.run(bridge(), node()));
        parts_.push_back({std::move(runs), ZeroedFloats(worker), ZeroedFloats(server)});
    }
}

std::span<float> CompressedExchange::values(int bucket) const {
    const std::span<std::byte> bytes = arena_.shared(slices_.values);
    return {reinterpret_cast<float*>(bytes.data()),
            static_cast<size_t>(map_.layout().buckets[bucket].numel)};
}

std::span<float> CompressedExchange::begin(int bucket) {
    group_.await_all(slices_.taken, exchanges_);
    ++exchanges_;
    has_errors_ = true;
    return values(bucket);
}

void CompressedExchange::average(int bucket) {
    group_.post(slices_.filled, exchanges_);
    if (parts_.empty()) return;
    group_.await_all(slices_.filled, exchanges_);
    exchange(bucket);
    group_.post(slices_.averaged, exchanges_);
}

std::span<const float> CompressedExchange::averaged(int bucket) {
    for (int bridge = 0; bridge < map_.topology().bridge_count(); ++bridge)
        group_.await(slices_.averaged, bridge, exchanges_);
    return values(bucket);
}

void CompressedExchange::end() {
    group_.post(slices_.taken, exchanges_);
}

void CompressedExchange::exchange(int bucket) {
    Part& part = parts_[bucket];
    const std::span<float> all = values(bucket);
    const Blocks own = part.runs.run(bridge(), node());
    float* errors = part.worker.values().data();
    for (int to = 0; to < nodes(); ++to) {
        const Blocks run = part.runs.run(bridge(), to);
        compress(run, 1.0F, all, errors, out_[to]);
        errors += plan::numel_of(run);
        in_[to].resize(static_cast<size_t>(plan::sign_message_bytes(own)));
    }
    swap(out_, in_);
    // Adds the messages in the order of the hosts. All sums over hosts use this order.
    for (int from = 0; from < nodes(); ++from)
        expand(own, from == node() ? out_[from] : in_[from], /*adds=*/from > 0, all);
    compress(own, 1.0F / static_cast<float>(nodes()), all, part.server.values().data(),
             out_[node()]);
    for (int to = 0; to < nodes(); ++to) {
        if (to != node()) out_[to] = out_[node()];
        in_[to].resize(static_cast<size_t>(plan::sign_message_bytes(part.runs.run(bridge(), to))));
    }
    swap(out_, in_);
    for (int from = 0; from < nodes(); ++from)
        expand(part.runs.run(bridge(), from), from == node() ? out_[from] : in_[from],
               /*adds=*/false, all);
}

// Compresses the elements BLOCKS of a bucket into the message INTO. VALUES has all elements of the
// bucket. ERRORS points to the errors of BLOCKS, one block after the other.
void CompressedExchange::compress(Blocks blocks, float factor, std::span<const float> values,
                                  float* errors, Message& into) {
    into.resize(static_cast<size_t>(plan::sign_message_bytes(blocks)));
    std::byte* scales = into.data();
    auto* bits = reinterpret_cast<uint8_t*>(scales + blocks.size() * sizeof(float));
    for (const plan::LayoutBlock& block : blocks) {
        const float scale = kernels::compress_signs(
            values.data() + block.begin, factor, {errors, static_cast<size_t>(block.numel)}, bits);
        std::memcpy(scales, &scale, sizeof scale);
        scales += sizeof scale;
        errors += block.numel;
        bits += kernels::sign_bytes(block.numel);
    }
}

void CompressedExchange::expand(Blocks blocks, const Message& from, bool adds,
                                std::span<float> values) {
    const std::byte* scales = from.data();
    const auto* bits = reinterpret_cast<const uint8_t*>(scales + blocks.size() * sizeof(float));
    for (const plan::LayoutBlock& block : blocks) {
        float scale = 0;
        std::memcpy(&scale, scales, sizeof scale);
        kernels::expand_signs(
            bits, scale, adds,
            values.subspan(static_cast<size_t>(block.begin), static_cast<size_t>(block.numel)));
        scales += sizeof scale;
        bits += kernels::sign_bytes(block.numel);
    }
}

void CompressedExchange::swap(const std::vector<Message>& sends, std::vector<Message>& receives) {
    const std::vector<std::span<const std::byte>> out(sends.begin(), sends.end());
    const std::vector<std::span<std::byte>> in(receives.begin(), receives.end());
    collectives_.swap_over_hosts(out, in);
}

void CompressedExchange::clear() {
    has_errors_ = false;
    for (Part& part : parts_) {
        std::ranges::fill(part.worker.values(), 0.0F);
        std::ranges::fill(part.server.values(), 0.0F);
    }
}

std::vector<std::string> CompressedExchange::state_names() const {
    if (!has_errors_) return {};
    std::vector<std::string> names = {kServerError};
    for (int node = 0; node < nodes(); ++node) names.push_back(worker_error(node));
    return names;
}

// Calls use(bucket, state, parameter, elements, errors) for every block whose errors this rank
// keeps. State 0 is the server's error, state 1 + H the worker error of host H.
template <typename Parts, typename Use>
void CompressedExchange::for_each_error(Parts& parts, Use&& use) const {
    const plan::FlatLayout& layout = map_.layout();
    for (int b = 0; b < std::ssize(parts); ++b) {
        const auto visit = [&](Blocks blocks, int state, auto& errors) {
            auto* at = errors.values().data();
            for (const plan::LayoutBlock& block : blocks) {
                const plan::ParameterSlice& slice = layout.slices[block.slice];
                const int64_t begin =
                    block.begin - (slice.offset_numel - layout.buckets[b].offset_numel);
                use(b, state, slice.parameter, Range{begin, block.numel}, at);
                at += block.numel;
            }
        };
        visit(parts[b].runs.run(bridge(), node()), 0, parts[b].server);
        visit(parts[b].runs.of_bridge(bridge()), 1 + node(), parts[b].worker);
    }
}

void CompressedExchange::add_pieces(int first, int unit,
                                    std::vector<runtime::SavedPiece>& pieces) const {
    if (!has_errors_) return;
    for_each_error(parts_,
                   [&](int b, int state, int parameter, const Range& elements, const float* at) {
                       pieces.push_back({parameter, first + state, elements,
                                         reinterpret_cast<const std::byte*>(at), unit + b});
                   });
}

void CompressedExchange::load(runtime::SavedState& saved) {
    const std::vector<std::string>& names = saved.checkpoint().states;
    const auto index_of = [&](const std::string& name) {
        const auto found = std::ranges::find(names, name);
        return found == names.end() ? -1 : static_cast<int>(found - names.begin());
    };
    const int server = index_of(kServerError);
    if (server < 0) return;
    std::vector<int> workers;
    for (int node = 0; index_of(worker_error(node)) >= 0; ++node)
        workers.push_back(index_of(worker_error(node)));
    has_errors_ = true;
    std::vector<float> theirs;
    for_each_error(parts_, [&](int, int state, int parameter, const Range& elements, float* into) {
        if (!saved.has_states(parameter)) return;
        if (state == 0) return saved.read_state(parameter, server, elements, into);
        if (std::ssize(workers) == nodes())
            return saved.read_state(parameter, workers[state - 1], elements, into);
        theirs.resize(static_cast<size_t>(elements.numel));
        for (const int worker : workers) {
            saved.read_state(parameter, worker, elements, theirs.data());
            for (int64_t i = 0; i < elements.numel; ++i)
                into[i] += theirs[i] / static_cast<float>(workers.size());
        }
    });
}

Bytes CompressedExchange::bytes() const {
    int64_t numel = 0;
    for (const Part& part : parts_)
        numel += std::ssize(part.worker.values()) + std::ssize(part.server.values());
    return Bytes{numel * int64_t{sizeof(float)}};
}

}  // namespace dslaunch::zero
