// TensorBoard's event files, compared with bytes of stock TensorBoard, and read by an independent
// reader.
#include "launch/metrics/event_files.h"

#include <filesystem>

#include "launch/metrics/event_bytes.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "unit/launch/metrics/event_reader.h"

namespace dslaunch {

using namespace launch;
using namespace test;

namespace {

MetricsRecord record(int64_t step, double loss) {
    MetricsRecord record;
    record.step = step;
    record.samples = 4 * step;
    record.events = {{"Train/Samples/train_loss", loss}, {"Train/Samples/lr", 0.5}};
    return record;
}

std::vector<std::pair<int64_t, float>> losses_in(const std::string& folder) {
    return curves_in(folder)["Train/Samples/train_loss"];
}

}  // namespace

TEST_CASE("CRC-32C has the values of RFC 3720") {
    CHECK(crc32c("123456789") == 0xe3069283);
    CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
    CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
    CHECK(crc32c("") == 0);
}

TEST_CASE("an event file has the bytes that stock TensorBoard's classes make") {
    // tests/fixtures/make_monitors.py has the same numbers.
    const std::vector<MetricEvent> first = {{"Train/Samples/train_loss", 2.5},
                                            {"Train/Samples/lr", 1e-05}};
    const std::vector<MetricEvent> second = {{"Train/Samples/train_loss", 1.1},
                                             {"Train/Samples/rss_bytes", 123456789.0}};
    const std::string bytes = tf_record(version_event(1700000000.25)) +
                              tf_record(session_start_event(1700000000.25, 8)) +
                              tf_record(scalars_event(1700000000.25, 8, first)) +
                              tf_record(scalars_event(1700000001.5, 300, second));
    const std::string stock = content_of(fixture_path("monitors/stock.tfevents"));
    REQUIRE(stock.size() > 200);
    CHECK(bytes == stock);
}

TEST_CASE("a run's event file begins with its version, and one message has all values of a step") {
    const TemporaryFolder folder;
    EventFiles sink(folder.path());
    REQUIRE(sink.begin(4, /*is_new_run=*/true) == 0);
    CHECK(names_in(folder.path()).empty());
    REQUIRE(sink.write(record(1, 3.5), 4) == 0);
    REQUIRE(sink.write(record(2, 2.5), 8) == 0);
    const auto files = names_in(folder.path());
    REQUIRE(files.size() == 1);
    CHECK(files[0].starts_with("events.out.tfevents."));
    const auto events = events_in(folder.read(files[0]));
    REQUIRE(events.size() == 4);
    CHECK(events[0].version == "brain.Event:2");
    CHECK(events[1].session == 1);
    CHECK(events[1].step == 0);  // all values of earlier runs are discarded
    CHECK(events[2].step == 4);
    CHECK(events[2].values.size() == 2);
    CHECK(events[3].values[0] == std::pair<std::string, float>("Train/Samples/train_loss", 2.5F));
    CHECK(events[3].wall_time > 1.7e9);
}

TEST_CASE("a job that continues discards what it writes again, and a torn end harms nothing") {
    const TemporaryFolder folder;
    {
        EventFiles sink(folder.path());
        REQUIRE(sink.begin(4, true) == 0);
        for (int64_t step = 1; step <= 5; ++step)
            REQUIRE(sink.write(record(step, 10.0 - double(step)), 4 * step) == 0);
    }
    // A killed launcher leaves an incomplete record.
    const auto files = names_in(folder.path());
    REQUIRE(files.size() == 1);
    const std::string file = folder.path() + "/" + files[0];
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 7);
    CHECK(losses_in(folder.path()).size() == 4);
    EventFiles sink(folder.path());
    REQUIRE(sink.begin(4 * 4, false) == 0);
    for (int64_t step = 4; step <= 6; ++step) REQUIRE(sink.write(record(step, 1.0), 4 * step) == 0);
    CHECK(names_in(folder.path()).size() == 2);
    const std::vector<std::pair<int64_t, float>> expected = {{4, 9},  {8, 8},  {12, 7},
                                                             {16, 1}, {20, 1}, {24, 1}};
    CHECK(losses_in(folder.path()) == expected);
}

TEST_CASE("event files that were deleted during a run are started again") {
    const TemporaryFolder folder;
    const std::string place = folder.path() + "/logs";
    std::filesystem::create_directories(place);
    EventFiles sink(place);
    REQUIRE(sink.begin(4, true) == 0);
    REQUIRE(sink.write(record(1, 3), 4) == 0);
    std::filesystem::remove_all(place);
    REQUIRE(sink.write(record(2, 2), 8) == 0);
    CHECK(losses_in(place) == std::vector<std::pair<int64_t, float>>{{8, 2}});
}

TEST_CASE("a record without values makes no event") {
    const TemporaryFolder folder;
    EventFiles sink(folder.path());
    REQUIRE(sink.begin(0, true) == 0);
    REQUIRE(sink.write(MetricsRecord{}, 0) == 0);
    CHECK(names_in(folder.path()).empty());
}

}  // namespace dslaunch
