// Runs a function once per rank of an in-process world, each rank on a thread, and brings their
// errors to the test.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/comm/in_process.h"

namespace dslaunch::testing {

using namespace runtime;

// Returns each rank's error, by rank; empty for one that ended well.
inline std::vector<std::optional<Error>> outcomes(
    InProcessWorld& world, const std::function<void(InProcessRank& self, int rank)>& body) {
    std::vector<std::optional<Error>> result(static_cast<size_t>(world.world_size()));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world.world_size(); ++rank) {
        threads.emplace_back([&, rank] {
            try {
                InProcessRank self = world.enter(rank);
                body(self, rank);
            } catch (const Error& error) {
                result[rank] = error;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return result;
}

// Runs BODY once per rank; throws the first rank's error.
inline void run_world(InProcessWorld& world,
                      const std::function<void(InProcessRank& self, int rank)>& body) {
    for (const std::optional<Error>& error : outcomes(world, body)) {
        if (error) throw *error;
    }
}

}  // namespace dslaunch::testing
