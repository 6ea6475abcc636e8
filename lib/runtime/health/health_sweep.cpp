#include "runtime/health/health_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::runtime {
namespace {

constexpr int kCoefficients = 13;
constexpr int kRamp = 251;
constexpr int kIterationSteps = 17;
constexpr int64_t kTellingBytes = 32 << 10;

bool is_sum(health::HealthOp op) {
    return op == health::HealthOp::kAllReduce || op == health::HealthOp::kReduceScatter;
}

// Returns RANK's factor. It is so small that the sums here are exact in fp32 for up to 5,000 ranks:
// fp32 is exact for integers below 2^24.
int64_t coefficient(int rank) {
    return rank % kCoefficients + 1;
}

int64_t coefficients_sum(int world_size) {
    const int64_t rounds = world_size / kCoefficients;
    const int64_t rest = world_size % kCoefficients;
    return rounds * kCoefficients * (kCoefficients + 1) / 2 + rest * (rest + 1) / 2;
}

float moved_value(int rank, int64_t index, int64_t iteration) {
    const uint64_t mixed = static_cast<uint64_t>(rank) * 2'654'435'761U +
                           static_cast<uint64_t>(index) * 40'503U +
                           static_cast<uint64_t>(iteration) * 97'003U + 1;
    return static_cast<float>((mixed ^ (mixed >> 13)) & 0xffffffU);
}

class Sweep {
  public:
    Sweep(const SweepOptions& options, const SweepSeams& seams)
        : options_(options), seams_(seams) {}

    void run() {
        for (const health::HealthOp op : health::kHealthOps) {
            // A single rank has no other rank to send to.
            if (op == health::HealthOp::kSendReceive && options_.world_size == 1) continue;
            last_ = {};
            if (op == health::HealthOp::kBarrier) {
                run_row(op, 0);
                continue;
            }
            for (const int64_t bytes : options_.sizes_bytes) run_row(op, bytes);
        }
    }

  private:
    void run_row(health::HealthOp op, int64_t bytes) {
        ++row_;
        const std::string name =
            bytes == 0 ? health::health_op_name(op)
                       : fmt::format("{} of {} bytes", health::health_op_name(op), bytes);
        seams_.enter(name, options_.limit + std::chrono::seconds(4));
        if (agree("go", has_time_for(bytes) ? 1 : 0) == 0) {
            if (options_.rank == 0)
                seams_.report(health::HealthNote{
                    fmt::format("{} was skipped, because the previous size took {:.1f} s", name,
                                to_milliseconds(last_) / 1000)});
            return;
        }
        const SweepShape shape = sweep_shape(op, bytes, options_.world_size);
        told_ = false;
        try {
            last_ = run_once(op, shape, 0);  // this run makes connections and buffers
            last_bytes_ = bytes;
            const int64_t wanted = std::clamp<int64_t>(
                options_.row_time / std::max<Duration>(last_, std::chrono::microseconds(1)), 1,
                options_.iterations_max);
            const int64_t iterations = agree("times", wanted);
            Duration total{};
            for (int64_t i = 1; i <= iterations; ++i) {
                seams_.enter(name, options_.limit + std::chrono::seconds(4));
                total += run_once(op, shape, i);
            }
            last_ = total / iterations;
            seams_.report(health::HealthTiming{op, shape.bytes, iterations, last_.count()});
        } catch (const Error& error) {
            throw Error(error.code(), fmt::format("{}: {}", name, error.what()));
        }
    }

    [[nodiscard]] int64_t agree(const char* what, int64_t proposal) {
        return agree_with_first(options_, seams_.board, fmt::format("sweep/{}/{}", row_, what),
                                "the next operation", proposal);
    }
    Duration run_once(health::HealthOp op, const SweepShape& shape, int64_t iteration) {
        SweepPlace place{options_.rank, options_.world_size, iteration, 0};
        place.part_numel =
            std::max(shape.send_numel, shape.receive_numel) / std::max(options_.world_size, 1);
        send_.resize(static_cast<size_t>(shape.send_numel));
        for (size_t i = 0; i < send_.size(); ++i)
            send_[i] = sent_value(op, place, static_cast<int64_t>(i));
        seams_.collectives.load(send_, shape.receive_numel);
        // All ranks begin at the same time, so that the measured time is the operation's, and does
        // not include the time in which the last rank fills its buffer.
        if (op != health::HealthOp::kBarrier) seams_.collectives.run(health::HealthOp::kBarrier);
        const TimePoint begun = SystemClock().now();
        seams_.collectives.run(op);
        const Duration took = SystemClock().now() - begun;
        receive_.assign(static_cast<size_t>(shape.receive_numel), -1);
        if (op == health::HealthOp::kBarrier) return took;
        seams_.collectives.fetch(receive_);
        verify(op, place, shape.bytes);
        return took;
    }

    void verify(health::HealthOp op, const SweepPlace& place, int64_t bytes) {
        int64_t wrong = 0;
        int64_t first = 0;
        for (int64_t i = 0; i < std::ssize(receive_); ++i) {
            if (receive_[i] == expected_value(op, place, i)) continue;
            if (wrong++ == 0) first = i;
        }
        if (wrong == 0 || told_) return;
        told_ = true;
        seams_.report(health::HealthFault{
            options_.rank,
            fmt::format("rank {} on host {}: wrong result of {} of {} bytes in iteration {}: "
                        "element {} is {}, but should be {}; {} of {} elements are wrong",
                        options_.rank, options_.host, health::health_op_name(op), bytes,
                        place.iteration, first, receive_[first], expected_value(op, place, first),
                        wrong, receive_.size())});
    }

    [[nodiscard]] bool has_time_for(int64_t bytes) const {
        // The time of small messages is all latency, so it says little about larger messages.
        const double growth = last_bytes_ >= kTellingBytes && bytes > last_bytes_
                                  ? static_cast<double>(bytes) / static_cast<double>(last_bytes_)
                                  : 1;
        const double expected = static_cast<double>(last_.count()) * growth;
        const Duration left = options_.deadline - SystemClock().now();
        const double allowed =
            static_cast<double>(std::min<Duration>(options_.limit, left).count());
        return expected < allowed / 2;
    }

    const SweepOptions& options_;
    const SweepSeams& seams_;
    int row_ = 0;
    Duration last_{};  // time of the previous size of the same operation
    int64_t last_bytes_ = 0;
    bool told_ = false;  // true once a wrong element of this row was reported
    std::vector<float> send_;
    std::vector<float> receive_;
};

}  // namespace

int64_t agree_with_first(const SweepOptions& options, Board& board, const std::string& key,
                         const char* what, int64_t proposal) {
    if (options.rank == 0) {
        board.set(key, std::to_string(proposal));
        return proposal;
    }
    const auto value = board.get(key, options.limit + std::chrono::seconds(2));
    if (!value)
        fail(ExitCode::kHang, "rank 0 did not reach {} within {:.0f} s", what,
             to_milliseconds(options.limit) / 1000);
    return parse_int(*value).value_or(0);
}

void sweep_operations(const SweepOptions& options, const SweepSeams& seams) {
    Sweep(options, seams).run();
}

SweepShape sweep_shape(health::HealthOp op, int64_t bytes, int world_size) {
    const auto item = static_cast<int64_t>(sizeof(float));
    const int64_t whole = std::max<int64_t>(bytes / item, 1);
    const int64_t part = std::max<int64_t>(whole / world_size, 1);
    switch (op) {
        case health::HealthOp::kBarrier:
            return {0, 0, 0};
        case health::HealthOp::kAllGather:
            return {part, part * world_size, part * world_size * item};
        case health::HealthOp::kReduceScatter:
            return {part * world_size, part, part * world_size * item};
        case health::HealthOp::kAllToAll:
            return {part * world_size, part * world_size, part * world_size * item};
        default:
            return {whole, whole, whole * item};
    }
}

float sent_value(health::HealthOp op, const SweepPlace& place, int64_t index) {
    if (!is_sum(op)) return moved_value(place.rank, index, place.iteration);
    return static_cast<float>(coefficient(place.rank) * (index % kRamp + 1) +
                              place.iteration % kIterationSteps);
}

float expected_value(health::HealthOp op, const SweepPlace& place, int64_t index) {
    const int64_t part = std::max<int64_t>(place.part_numel, 1);
    const int64_t own = place.rank * part;
    const int before = (place.rank + place.world_size - 1) % place.world_size;
    switch (op) {
        case health::HealthOp::kBarrier:
            return 0;
        case health::HealthOp::kBroadcast:
            return moved_value(0, index, place.iteration);
        case health::HealthOp::kSendReceive:
            return moved_value(before, index, place.iteration);
        case health::HealthOp::kAllGather:
            return moved_value(static_cast<int>(index / part), index % part, place.iteration);
        case health::HealthOp::kAllToAll:
            return moved_value(static_cast<int>(index / part), own + index % part, place.iteration);
        case health::HealthOp::kAllReduce:
        case health::HealthOp::kReduceScatter: {
            const int64_t at = op == health::HealthOp::kAllReduce ? index : own + index;
            return static_cast<float>(coefficients_sum(place.world_size) * (at % kRamp + 1) +
                                      place.world_size * (place.iteration % kIterationSteps));
        }
    }
    return 0;
}

}  // namespace dslaunch::runtime
