// Chooses the number of connections that use the full rate of the path between two hosts: some
// networks limit each connection to a part of it. Data path: rates of a Gloo link -> [here] -> the
// links of a job. No LibTorch.
#pragma once

#include <algorithm>
#include <functional>

namespace dslaunch::runtime {

// The rates are in bytes per second that each node sends and receives at the same time, on the
// slowest path.
struct StreamChoice {
    int streams = 1;
    double one_bytes_per_s = 0;
    double chosen_bytes_per_s = 0;
};

inline constexpr int kStreamsMax = 16;
inline constexpr int kConnectionsMax = 512;  // of a host: a process often may open only 1,024 files
inline constexpr double kStreamGain = 1.2;
// Returns the largest number of streams that a host opens to each of OTHER_HOSTS unless the user
// sets it.
[[nodiscard]] inline int streams_max(int other_hosts) {
    return std::clamp(kConnectionsMax / other_hosts, 1, kStreamsMax);
}
// Doubles the number of streams, up to MOST, while that increases the rate at least by the factor
// kStreamGain. MEASURE returns the rate with a number of streams.
[[nodiscard]] inline StreamChoice choose_streams(
    int most, const std::function<double(int streams)>& measure) {
    StreamChoice choice;
    choice.one_bytes_per_s = choice.chosen_bytes_per_s = measure(1);
    while (2 * choice.streams <= most) {
        const double rate = measure(2 * choice.streams);
        if (rate < kStreamGain * choice.chosen_bytes_per_s) break;
        choice.streams *= 2;
        choice.chosen_bytes_per_s = rate;
    }
    return choice;
}

}  // namespace dslaunch::runtime
