#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "health/health_schedule.h"
#include "runtime/health/health_sweep.h"

namespace dslaunch::runtime {
namespace {

constexpr int kTimes = 5;  // exchanges measured, after an exchange that makes the connection

// Returns rounds in which each rank has at most one partner. A pair exchanges in both directions at
// once, so only one of its two links is kept.
std::vector<health::LinkRound> pair_rounds(int world_size) {
    std::vector<health::LinkRound> rounds = health::all_link_rounds(world_size);
    std::set<std::pair<int, int>> seen;
    for (health::LinkRound& round : rounds)
        std::erase_if(round, [&](const health::NodeLink& link) {
            return !seen.insert(std::minmax(link.from, link.to)).second;
        });
    std::erase_if(rounds, [](const health::LinkRound& round) { return round.empty(); });
    return rounds;
}

class PairSweep {
  public:
    PairSweep(const SweepOptions& options, PairedCollectives& pairs, const SweepSeams& seams,
              int64_t bytes)
        : options_(options), pairs_(pairs), seams_(seams) {
        send_.resize(static_cast<size_t>(bytes) / sizeof(float));
        receive_.resize(send_.size());
        for (size_t i = 0; i < send_.size(); ++i) send_[i] = value(options.rank, i);
    }

    void run() {
        const std::vector<health::LinkRound> rounds = pair_rounds(options_.world_size);
        pairs_.load(send_, std::ssize(send_));
        for (size_t round = 0; round < rounds.size(); ++round) {
            if (!goes_on(round, rounds.size())) return;
            int peer = -1;
            for (const health::NodeLink& link : rounds[round]) {
                if (link.from == options_.rank) peer = link.to;
                if (link.to == options_.rank) peer = link.from;
            }
            if (peer >= 0) measure(peer);
            // All ranks begin the next round at the same time.
            seams_.enter("the end of a round of pairs", options_.limit + std::chrono::seconds(4));
            pairs_.run(health::HealthOp::kBarrier);
        }
    }

  private:
    static float value(int rank, size_t index) {
        return static_cast<float>((static_cast<size_t>(rank) * 7919 + index) % 65'521);
    }
    [[nodiscard]] bool goes_on(size_t round, size_t rounds) {
        const bool has_time = SystemClock().now() + options_.limit < options_.deadline;
        const bool go = agree_with_first(options_, seams_.board, fmt::format("pairs/{}", round),
                                         "the next round of pairs of GPUs", has_time ? 1 : 0) != 0;
        if (!go && options_.rank == 0)
            seams_.report(health::HealthNote{fmt::format(
                "{} of {} rounds of GPU pairs were skipped because there was not enough time",
                rounds - round, rounds)});
        return go;
    }

    void measure(int peer) {
        const std::string name =
            fmt::format("the GPUs of ranks {} and {}", std::min(options_.rank, peer),
                        std::max(options_.rank, peer));
        try {
            seams_.enter(name, options_.limit + std::chrono::seconds(4));
            pairs_.exchange_with(peer);
            const TimePoint begun = SystemClock().now();
            for (int i = 0; i < kTimes; ++i) pairs_.exchange_with(peer);
            const Duration took = std::max<Duration>((SystemClock().now() - begun) / kTimes,
                                                     std::chrono::nanoseconds(1));
            pairs_.fetch(receive_);
            verify(peer);
            const double bytes = static_cast<double>(send_.size() * sizeof(float));
            const double seconds = std::chrono::duration<double>(took).count();
            if (options_.rank < peer)
                seams_.report(health::GpuPairSample{options_.rank, peer,
                                                    static_cast<int64_t>(bytes / seconds)});
        } catch (const Error& error) {
            throw Error(error.code(), fmt::format("{}: {}", name, error.what()));
        }
    }

    void verify(int peer) {
        for (size_t i = 0; i < receive_.size(); ++i) {
            if (receive_[i] == value(peer, i)) continue;
            return seams_.report(health::HealthFault{
                options_.rank,
                fmt::format("rank {} on host {} received wrong data from the GPU of rank {}: "
                            "element {} is {}, but should be {}",
                            options_.rank, options_.host, peer, i, receive_[i], value(peer, i))});
        }
    }

    const SweepOptions& options_;
    PairedCollectives& pairs_;
    const SweepSeams& seams_;
    std::vector<float> send_;
    std::vector<float> receive_;
};

}  // namespace

void sweep_gpu_pairs(const SweepOptions& options, PairedCollectives& pairs, const SweepSeams& seams,
                     int64_t bytes) {
    if (options.world_size > 1) PairSweep(options, pairs, seams, bytes).run();
}

}  // namespace dslaunch::runtime
