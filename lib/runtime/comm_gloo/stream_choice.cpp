#include "runtime/comm_gloo/stream_choice.h"

#include <algorithm>

namespace dslaunch::runtime {

int streams_max(int other_hosts) {
    return std::clamp(kConnectionsMax / other_hosts, 1, kStreamsMax);
}

StreamChoice choose_streams(int most, const std::function<double(int streams)>& measure) {
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
