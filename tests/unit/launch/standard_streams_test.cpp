#include "launch/process/standard_streams.h"

#include <chrono>
#include <future>

#include "base/log.h"
#include "support/catch.h"
#include "support/piped_stream.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("a log line of any thread is kept for a stderr that nobody reads, and waits for nobody") {
    PipedStream err(2);
    err.fill();
    StandardStreams streams;
    auto said = std::async(std::launch::async, [] { log_error("test", "a disk has {}", "ended"); });
    const bool in_time = said.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    const bool is_kept = streams.has_kept();
    err.close_reader();  // releases a thread that waits
    said.wait();
    err.restore();
    CHECK(in_time);
    CHECK(is_kept);
    streams.hurry();
}
