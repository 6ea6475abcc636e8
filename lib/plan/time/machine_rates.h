// The seconds that a machine takes for the work of a step. This is the only place that converts
// bytes and elements to time. Data path: measurements (job/predict/job_forecast.h), io-bench's
// stored rates and options -> [here] -> step forecast, stage choice, mesh cost, shard choice. Pure.
//
// UNITS: seconds, bytes, elements. A rate of 0 means that the rate is not known; work at this rate
// takes no time.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace dslaunch::plan {

inline constexpr int64_t kFp32Bytes = 4;

// Returns the time of an amount at a rate per second; 0 if the rate is not known.
[[nodiscard]] inline double seconds_at(double amount, double per_s) {
    return per_s > 0 ? amount / per_s : 0;
}
[[nodiscard]] inline double seconds_at(Bytes bytes, double bytes_per_s) {
    return seconds_at(static_cast<double>(bytes.value), bytes_per_s);
}

// The times of one segment for one micro batch, with the threads of one rank.
struct SegmentTimes {
    double forward_s = 0;
    double backward_input_s = 0;
    double backward_weight_s = 0;
};

// Return sums of times: backward_s() adds both halves of OF's backward, and micro_batch_s() adds
// OF's forward and backward. add_times() adds each time in OF to the same time in TO. OF and TO can
// have any type with the members of SegmentTimes.
template <typename Times>
[[nodiscard]] double backward_s(const Times& of) {
    return of.backward_input_s + of.backward_weight_s;
}
template <typename Times>
[[nodiscard]] double micro_batch_s(const Times& of) {
    return of.forward_s + of.backward_input_s + of.backward_weight_s;
}
template <typename Times, typename Others>
void add_times(Times& to, const Others& of) {
    to.forward_s += of.forward_s;
    to.backward_input_s += of.backward_input_s;
    to.backward_weight_s += of.backward_weight_s;
}

// The rates of all disks of a host together, as `dslaunch io-bench` measured them.
struct DiskRates {
    double read_bytes_per_s = 0;
    double write_bytes_per_s = 0;

    // Returns the time of the reads plus the time of the writes, since both use the same disks.
    // Returns nullopt if a rate is not known.
    [[nodiscard]] std::optional<double> seconds(double read_bytes, double written_bytes) const {
        if (read_bytes_per_s <= 0 || write_bytes_per_s <= 0) return std::nullopt;
        return read_bytes / read_bytes_per_s + written_bytes / write_bytes_per_s;
    }
};

// The shape of a group of ranks that communicate: the number of its ranks, the number of their
// hosts, and the number of similar groups that share a host's link.
struct GroupShape {
    int ranks = 1;
    int hosts = 1;
    int crossing = 1;

    // Returns how many of the ranks are on one host, rounded up.
    [[nodiscard]] int on_host() const { return (ranks + hosts - 1) / hosts; }
};

// The speeds of one rank, with its threads, while the other ranks of its host do the same work.
struct MachineRates {
    double update_numel_per_s = 0;  // elements that the optimizer's step updates
    double sum_bytes_per_s = 0;     // bytes read and written by sums and copies in memory
    // The speeds of the computation and of an update while both run at the same time, as fractions
    // of their full speeds. A fraction is 0.5 if both share processors without loss, and 1 if each
    // has separate processors.
    double computing_beside = 0.5;
    double updating_beside = 0.5;
    double host_bytes_per_s = 0;  // bytes that a rank receives from another rank of its host
    double link_bytes_per_s = 0;  // bytes that a host receives from another host; its ranks share
                                  // this rate
    DiskRates disk = {};          // rates of a host; its ranks share them

    // Returns the time in which the optimizer updates NUMEL elements.
    [[nodiscard]] double update_s(double numel) const {
        return seconds_at(numel, update_numel_per_s);
    }
    // Returns the time of a copy, which reads BYTES and writes BYTES. add_s returns the time to add
    // one array to another: this reads two arrays of NUMEL elements and writes one array.
    [[nodiscard]] double copy_s(Bytes bytes) const {
        return seconds_at(bytes * 2, sum_bytes_per_s);
    }
    [[nodiscard]] double add_s(int64_t numel) const {
        return seconds_at(Bytes{3 * kFp32Bytes * numel}, sum_bytes_per_s);
    }
    // Returns the time in which a host receives BYTES from another host.
    [[nodiscard]] double link_s(Bytes bytes) const { return seconds_at(bytes, link_bytes_per_s); }

    // Returns the time in which a group sums BYTES. PASSES is 2 if all ranks get the sum, 1 if each
    // owner gets its part. The ranks of each host add up their values first.
    [[nodiscard]] double sum_s(double bytes, double passes, const GroupShape& group) const {
        const double near = static_cast<double>(group.on_host() - 1) / group.on_host();
        return seconds_at(passes * bytes * near, host_bytes_per_s) +
               between_s(passes * bytes, group);
    }
    // Returns the time in which each host of a group receives the other hosts' parts of BYTES.
    [[nodiscard]] double between_s(double bytes, const GroupShape& group) const {
        const double far = static_cast<double>(group.hosts - 1) / group.hosts;
        return seconds_at(bytes * far * group.crossing, link_bytes_per_s);
    }
    // Returns the time in which each rank of a group sends BYTES to every other rank.
    [[nodiscard]] double exchange_s(double bytes, const GroupShape& group) const {
        const int near = group.on_host() - 1;
        const int far = group.ranks - group.on_host();
        return seconds_at(bytes * near, host_bytes_per_s) +
               seconds_at(bytes * far * group.on_host() * group.crossing, link_bytes_per_s);
    }
};

}  // namespace dslaunch::plan
