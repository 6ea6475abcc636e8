// Offload files, under /tmp, of ranks that are threads.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "zero/states/state_store.h"

namespace dslaunch::testing {

using namespace config;
using namespace plan;
using namespace storage;
using namespace zero;

// Returns null if the plan puts nothing on disk.
inline std::unique_ptr<OffloadFile> offload_file(const StepPlan& plan, const ChunkFormat& format) {
    const Bytes bytes = StateStore::bytes_on_disk(plan, format);
    if (bytes.value == 0) return nullptr;
    OffloadConfig config;
    config.engine = OffloadEngine::kThreads;
    static std::atomic<int> jobs{0};
    return std::make_unique<OffloadFile>(
        config, SwapPlace{{"/tmp"}, fmt::format("test-{}-{}", ::getpid(), ++jobs), plan.rank},
        bytes);
}

}  // namespace dslaunch::testing
