// The report on records: bandwidths as nccl-tests computes them, exit codes, text that is safe to
// print, and broken records.
#include "health/health_report.h"

#include <fmt/format.h>

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::health;

namespace {

HealthReport report_of(int ranks, double min_bus_bandwidth = 0) {
    HealthReportOptions options;
    for (int rank = 0; rank < ranks; ++rank) {
        options.host_names.push_back(fmt::format("n{}", rank));
        options.ranks.push_back({options.host_names.back(), 0});
    }
    options.min_bus_bandwidth = min_bus_bandwidth;
    return HealthReport(std::move(options));
}

std::string bytes_of(const HealthRecord& record) {
    return encode(HealthMessage{record});
}

HealthRecord read_record(std::string_view payload) {
    return decode<HealthMessage>(payload).record;
}

void add_all(HealthReport& report, int ranks, const HealthRecord& record) {
    for (int rank = 0; rank < ranks; ++rank) report.add(rank, bytes_of(record));
}

}  // namespace

TEST_CASE("bus bandwidth is nccl-tests': its factors for 4 ranks, written out") {
    CHECK(bus_factor(HealthOp::kAllReduce, 4) == Approx(1.5));
    CHECK(bus_factor(HealthOp::kAllGather, 4) == Approx(0.75));
    CHECK(bus_factor(HealthOp::kReduceScatter, 4) == Approx(0.75));
    CHECK(bus_factor(HealthOp::kAllToAll, 4) == Approx(0.75));
    CHECK(bus_factor(HealthOp::kBroadcast, 4) == 1);
    CHECK(bus_factor(HealthOp::kSendReceive, 4) == 1);
    CHECK(bus_factor(HealthOp::kAllReduce, 1) == 0);
}

TEST_CASE("the time of an operation is the mean over ranks, and bandwidths follow from it") {
    HealthReport report = report_of(2);
    report.add(0, bytes_of(HealthTiming{HealthOp::kAllReduce, 8'000'000, 10, 3'000'000}));
    report.add(1, bytes_of(HealthTiming{HealthOp::kAllReduce, 8'000'000, 10, 5'000'000}));
    const std::vector<HealthRow> rows = report.rows();
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].seconds == Approx(0.004));
    CHECK(rows[0].algorithm_bandwidth() == Approx(2.0));  // 8 MB in 4 ms
    CHECK(rows[0].bus_bandwidth(2) == Approx(2.0));       // 2 * (2 - 1) / 2
}

TEST_CASE("the exit code is the job's own, else 71 for a finding, else 0") {
    for (const int job : {0, 67, 68, 69, 76}) {
        HealthReport good = report_of(2);
        good.conclude(job);
        CHECK(good.exit_code() == job);
        HealthReport bad = report_of(2);
        bad.add(0, bytes_of(HealthFault{1, "rank 1: wrong"}));
        bad.conclude(job);
        CHECK(bad.exit_code() == (job == 0 ? 71 : job));
    }
    // If a path changes the ranks' messages, it is the reason for their hang.
    for (const int64_t wrong : {0, 3}) {
        HealthReport hung = report_of(2);
        LinkSample link;
        link.to = 1;
        link.exchanges = 100;
        link.bytes_per_second = 1'000'000'000;
        link.wrong = wrong;
        hung.add(0, bytes_of(link));
        hung.conclude(69);
        CHECK(hung.exit_code() == (wrong > 0 ? 71 : 69));
    }
}

TEST_CASE("a way is shown with what its own probe measured, beside changed answers") {
    for (const bool first : {true, false}) {
        HealthReport report = report_of(2);
        LinkSample own;
        own.from = 1;
        own.exchanges = 100;
        own.bytes_per_second = 1'000'000'000;
        LinkSample answers;
        answers.from = 1;
        answers.wrong = 4;
        for (const bool which : {first, !first}) report.add(0, bytes_of(which ? answers : own));
        report.conclude(0);
        CHECK_THAT(report.text(), Catch::Contains("1.00 GB/s") && Catch::Contains("4 words"));
        CHECK(report.exit_code() == 71);
    }
}

TEST_CASE("--min-busbw judges the best size of each operation that moves anything") {
    for (const double wanted : {1.9, 2.1}) {
        HealthReport report = report_of(2, wanted);
        add_all(report, 2, HealthTiming{HealthOp::kAllReduce, 4'000, 10, 1'000'000});
        add_all(report, 2, HealthTiming{HealthOp::kAllReduce, 8'000'000, 10, 4'000'000});
        add_all(report, 2, HealthTiming{HealthOp::kBarrier, 0, 10, 1'000'000});
        report.conclude(0);
        CHECK(report.exit_code() == (wanted > 2 ? 71 : 0));
        CHECK(report.findings().size() == (wanted > 2 ? 1U : 0U));
    }
}

TEST_CASE("every record comes back from its bytes as it was, alone and among others") {
    const LinkSample link{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, "why"};
    const std::vector<HealthRecord> records = {
        HealthMember{"NVIDIA H200", "10.0.0.1", "nccl", "140 GiB, driver 580"},
        HealthTiming{HealthOp::kAllToAll, 4096, 20, 77},
        link,
        HostSample{3, 1, 30},
        HealthFault{-1, "text"},
        HealthNote{"note"},
        GpuPairSample{1, 2, 400},
    };
    for (const HealthRecord& record : records) CHECK(read_record(bytes_of(record)) == record);
    CHECK(decode<HealthRecords>(encode(HealthRecords{records})).records == records);
}

TEST_CASE("bytes that are no record are refused, and so are hosts that are not in the job") {
    const std::string good = bytes_of(HealthTiming{HealthOp::kBarrier, 0, 1, 1});
    CHECK_THROWS_AS(read_record(""), Error);
    CHECK_THROWS_AS(read_record("\x09"), Error);
    CHECK_THROWS_AS(read_record(std::string("\x02\x63", 2)), Error);
    std::string longer = good;
    longer.push_back('x');
    CHECK_THROWS_AS(read_record(longer), Error);
    CHECK_THROWS_AS(read_record(good.substr(0, good.size() - 1)), Error);
    HealthReport report = report_of(2);
    LinkSample link;
    link.to = 2;
    CHECK_THROWS_AS(report.add(0, bytes_of(link)), Error);
    CHECK_THROWS_AS(report.add(0, bytes_of(HostSample{-1, 1, 1})), Error);
    CHECK_THROWS_AS(report.add(0, bytes_of(HealthFault{1, ""})), Error);
}

TEST_CASE("figures that nobody can have measured are refused before they are added up") {
    HealthReport report = report_of(2);
    for (const int64_t figure : {int64_t{-1}, INT64_MAX, INT64_MIN}) {
        for (int64_t LinkSample::*field :
             {&LinkSample::pass, &LinkSample::bytes_per_second, &LinkSample::free_bytes_per_second,
              &LinkSample::rtt_p50, &LinkSample::rtt_p99, &LinkSample::exchanges, &LinkSample::lost,
              &LinkSample::duplicated, &LinkSample::wrong}) {
            LinkSample link;
            link.*field = figure;
            CHECK_THROWS_AS(report.add(0, bytes_of(link)), Error);
        }
        CHECK_THROWS_AS(report.add(0, bytes_of(HostSample{0, 1, figure})), Error);
        CHECK_THROWS_AS(report.add(0, bytes_of(HostSample{0, figure, 1})), Error);
        CHECK_THROWS_AS(report.add(0, bytes_of(HealthTiming{HealthOp::kBarrier, 0, figure, 1})),
                        Error);
    }
    report.add(0, bytes_of(LinkSample{}));
    report.conclude(0);
    CHECK(report.findings().empty());
}

TEST_CASE("pairs of GPUs are listed, the slowest first, and one of other ranks is no record") {
    HealthReport report = report_of(4);
    for (int a = 0; a < 4; ++a)
        for (int b = a + 1; b < 4; ++b)
            report.add(a, bytes_of(GpuPairSample{a, b, a == 1 && b == 2 ? 1'000'000 : 50'000'000}));
    for (const GpuPairSample& wrong :
         {GpuPairSample{1, 1, 5}, GpuPairSample{2, 1, 5}, GpuPairSample{0, 4, 5}})
        CHECK_THROWS_AS(report.add(0, bytes_of(wrong)), Error);
    report.conclude(0);
    CHECK(report.exit_code() == 71);
    REQUIRE(report.findings().size() == 1);
    CHECK_THAT(report.text(), Catch::Contains("GPU of rank") && Catch::Contains("0.001 GB/s") &&
                                  Catch::Contains("UNHEALTHY between the GPU of rank 1"));
    CHECK_THAT(report.json(), Catch::Contains("\"gpu_pairs\": [{\"first\": 1, \"second\": 2, "
                                              "\"bytes_per_second\": 1000000}, "));
}

TEST_CASE("text and JSON name who came, what was measured and who is to blame") {
    HealthReport report = report_of(2);
    report.add(0, bytes_of(HealthMember{"cpu\x1b[2J", "10.0.0.1", "gloo"}));
    add_all(report, 2, HealthTiming{HealthOp::kAllGather, 65'536, 20, 100'000});
    report.add(0, bytes_of(HealthFault{1, "rank 1 does not answer"}));
    report.add(1, bytes_of(HealthFault{1, "rank 1 does not answer"}));
    report.conclude(69);
    CHECK(report.findings().size() == 1);  // two ranks say the same
    const std::string text = report.text();
    CHECK_THAT(text, Catch::Contains("did not come"));
    CHECK_THAT(text, Catch::Contains("all_gather"));
    CHECK_THAT(text, Catch::Contains("64 KiB"));
    CHECK_THAT(text, Catch::Contains("UNHEALTHY rank 1 does not answer"));
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK_THAT(report.json(), Catch::Contains("\"op\": \"all_gather\", \"bytes\": 65536"));
    CHECK_THAT(report.json(), Catch::Contains("\"exit_code\": 69"));
}
