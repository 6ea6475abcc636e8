#include "base/machine/signal_repeats.h"

#include <vector>

#include "support/catch.h"

namespace dslaunch::test {

using std::chrono::milliseconds;

TEST_CASE("equal signals within a second are one request, and each Ctrl-C of a terminal counts") {
    struct Arrival {
        int at_ms, number, code;
        bool repeats;
    };
    // The first row of each list arrives at a process that has got no signal yet.
    const std::vector<std::vector<Arrival>> lists = {
        {{0, SIGTERM, SI_USER, false}, {0, SIGTERM, SI_USER, true}},  // GNU timeout
        {{0, SIGTERM, SI_USER, false}, {1000, SIGTERM, SI_USER, false}},
        // The time counts from the first of the equal signals.
        {{0, SIGTERM, SI_USER, false},
         {700, SIGTERM, SI_USER, true},
         {1400, SIGTERM, SI_USER, false}},
        {{0, SIGTERM, SI_USER, false}, {1, SIGUSR1, SI_USER, false}},      // stop --now
        {{0, SIGHUP, SI_KERNEL, false}, {1, SIGHUP, SI_USER, true}},       // a terminal that closes
        {{0, SIGINT, SI_USER, false}, {1, SIGINT, SI_USER, true}},         // timeout -s INT
        {{0, SIGINT, SI_KERNEL, false}, {100, SIGINT, SI_KERNEL, false}},  // a user
    };
    for (const std::vector<Arrival>& list : lists) {
        SignalRepeats repeats;
        for (const Arrival& row : list) {
            INFO(row.number << " after " << row.at_ms << " ms");
            const SignalRepeats::Time now{milliseconds(1'000'000 + row.at_ms)};
            CHECK(repeats.repeats(row.number, row.code, now) == row.repeats);
        }
    }
}

}  // namespace dslaunch::test
