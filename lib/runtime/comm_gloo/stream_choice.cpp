#include "runtime/comm_gloo/stream_choice.h"

namespace dslaunch::runtime {

StreamChoice choose_streams(const std::function<double(int streams)>& measure) {
    StreamChoice choice;
    choice.one_bytes_per_s = choice.chosen_bytes_per_s = measure(1);
    while (choice.streams < kStreamsMax) {
        const double rate = measure(2 * choice.streams);
        if (rate < kStreamGain * choice.chosen_bytes_per_s) break;
        choice.streams *= 2;
        choice.chosen_bytes_per_s = rate;
    }
    return choice;
}

}  // namespace dslaunch::runtime
