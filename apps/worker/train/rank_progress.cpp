#include "worker/train/rank_progress.h"

#include <fmt/core.h>

#include <string>

#include "launch/process/timing.h"

namespace dslaunch::worker {

void RankProgress::start() {
    heartbeats_ = runtime::send_heartbeats(reporter_, launch::kHeartbeatInterval, [this] {
        launch::Heartbeat heartbeat{0, 1, "setting up"};
        if (speaks_) heartbeat.progress = activity_.text();
        return heartbeat;
    });
}

void RankProgress::set_up(std::string_view what) {
    activity_.begin(fmt::format("setting up: {}", what));
}

std::jthread RankProgress::follow(runtime::Trainer& trainer) {
    activity_.begin({});
    heartbeats_ = {};
    return runtime::send_heartbeats(reporter_, launch::kHeartbeatInterval, [this, &trainer] {
        launch::Heartbeat heartbeat = trainer.heartbeat();
        if (const std::string other = activity_.text(); speaks_ && !other.empty())
            heartbeat.progress = other;
        return heartbeat;
    });
}

double RankProgress::seconds() const {
    return to_milliseconds(clock_.now() - began_) / 1e3;
}

}  // namespace dslaunch::worker
