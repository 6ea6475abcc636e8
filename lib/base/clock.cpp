#include "base/clock.h"

#include <thread>

namespace dslaunch {

TimePoint SystemClock::now() const {
    return std::chrono::steady_clock::now();
}
void SystemClock::sleep_for(Duration duration) {
    std::this_thread::sleep_for(duration);
}

}  // namespace dslaunch
