// Chooses the number of connections that use the full rate of the path between two hosts: some
// networks limit each connection to a part of this rate. Data path: rates of a Gloo link -> [here]
// -> the links of a job. No LibTorch.
#pragma once

#include <algorithm>
#include <functional>

namespace dslaunch::runtime {

// The chosen number of streams, the rate of one stream, and the rate of the chosen number. A rate
// is the number of bytes per second that a node sends while it receives at the same rate. The
// slowest path determines the rate.
struct StreamChoice {
    int streams = 1;
    double one_bytes_per_s = 0;
    double chosen_bytes_per_s = 0;
};

inline constexpr int kStreamsMax = 16;
inline constexpr int kConnectionsMax = 512;  // per host: a process often may open only 1,024 files
inline constexpr double kStreamGain = 1.2;
// Returns the user's number of streams (SAID) if it is not 0. Otherwise, returns 1 if hosts meet on
// a loopback address, and 0 if the number must be measured.
[[nodiscard]] inline int given_streams(int said, bool loopback) {
    return said == 0 && loopback ? 1 : said;
}
// Returns the largest number of streams that a host opens to each of OTHER_HOSTS if the user has
// not set the number.
[[nodiscard]] inline int streams_max(int other_hosts) {
    return std::clamp(kConnectionsMax / other_hosts, 1, kStreamsMax);
}
// Chooses 1, 2, 4, … streams, at most MOST: doubles the number while each doubling increases the
// rate at least by the factor kStreamGain. MEASURE returns the rate for a number of streams.
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
