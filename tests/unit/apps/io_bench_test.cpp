#include "launcher/io/io_bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "launch/process/process_tree.h"
#include "launch/supervise/job.h"
#include "launcher/run/commands.h"
#include "storage/disk/io_arena.h"
#include "storage/swap/swap_files.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/job_process.h"
#include "support/skip.h"
#include "support/temporary_folder.h"

namespace dslaunch::test {

using namespace launch;
using namespace launcher;
using namespace storage;
namespace {

IoRow row(double read_gb, double write_gb, double cpu) {
    return {IoEngine::kUring, mib(1), 8, {read_gb * 1e9, cpu}, {write_gb * 1e9, cpu}};
}

IoBenchOptions small(const TemporaryFolder& folder) {
    IoBenchOptions options;
    options.folder = folder.path();
    options.length = mib(16);
    options.blocks = {kib(128), mib(1)};
    options.depths = {1, 4};
    options.turns = 2;
    options.cell_time = std::chrono::milliseconds(5);
    options.fio_time = std::chrono::milliseconds(100);
    options.with_fio = false;
    return options;
}

const std::function<void(const std::string&)> kSilent = [](const std::string&) {};

// Returns the text that a process of in_child() has written to stderr, which is a file in memory.
std::string said_so_far() {
    std::string bytes(1 << 12, '\0');
    const ssize_t length = ::pread(2, bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
    return bytes;
}

}  // namespace

TEST_CASE("of settings about as fast as the best, the one with the least processor time is used") {
    CHECK(best_io_row({row(1, 1, 5)}) == 0);
    CHECK(best_io_row({row(1, 1, 5), row(2, 2, 9), row(1.9, 1.9, 1)}) == 1);
    CHECK(best_io_row({row(1, 1, 5), row(2, 2, 9), row(1.95, 1.95, 1)}) == 2);
    // Harmonic means: 1.6 for 1 and 4, 2 for 2 and 2.
    CHECK(best_io_row({row(1, 4, 1), row(2, 2, 9)}) == 1);
}

TEST_CASE("fio's figures are read from its JSON") {
    const std::string json = R"(fio: a warning
{"fio version": "fio-3.33", "jobs": [{"jobname": "dslaunch", "usr_cpu": 1.5, "sys_cpu": 3.5,
 "read": {"io_bytes": 2000000000, "runtime": 500}, "write": {"io_bytes": 0, "runtime": 0}}]})";
    const IoFigure figure = parse_fio(json, {IoDirection::kRead});
    CHECK(figure.bytes_per_s == Approx(4e9));
    CHECK(figure.cpu_s_per_gb == Approx(0.05 * 0.5 / 2));
    CHECK_THROWS_WITH(parse_fio(json, {IoDirection::kWrite}), Catch::Contains("moved nothing"));
    // Two jobs of one group: 3 GB in one second, the time of the longer job, and 20 % of a
    // processor in 1.5 seconds.
    const std::string both = R"({"jobs": [{"usr_cpu": 5, "sys_cpu": 15,
 "read": {"io_bytes": 2000000000, "runtime": 500},
 "write": {"io_bytes": 1000000000, "runtime": 1000}}]})";
    const IoFigure of_both = parse_fio(both, {IoDirection::kRead, IoDirection::kWrite});
    CHECK(of_both.bytes_per_s == Approx(3e9));
    CHECK(of_both.cpu_s_per_gb == Approx(0.2 * 1.5 / 3));
    for (const char* bad : {"", "{", "{}", R"({"jobs": []})", R"({"jobs": [{}]})",
                            R"({"jobs": [{"read": {"io_bytes": "x"}}]})", R"({"jobs": [1]})"}) {
        INFO(bad);
        CHECK_THROWS_AS(parse_fio(bad, {IoDirection::kRead}), Error);
    }
}

TEST_CASE("a sweep measures every setting that fits, and leaves nothing") {
    const TemporaryFolder folder;
    IoBenchOptions options = small(folder);
    options.depths = {1, 4, 128};  // 128 blocks of 1 MiB are more than the file
    const IoBenchReport report = run_io_bench(
        options, [] {}, kSilent);
    size_t uring = 0;
    for (const IoRow& found : report.rows) {
        uring += found.engine == IoEngine::kUring ? 1 : 0;
        CHECK(found.read.bytes_per_s > 0);
        CHECK(found.write.bytes_per_s > 0);
        CHECK(found.read.cpu_s_per_gb > 0);
        CHECK(found.block * found.depth < mib(16));
    }
    CHECK(report.rows.size() - uring == 4);
    CHECK(uring == (report.engine_missing.empty() ? 4 : 0));
    CHECK(report.best < report.rows.size());
    CHECK(report.both.bytes_per_s > 0);
    CHECK_FALSE(report.fio);
    CHECK_FALSE(report.fio_both);
    CHECK(std::filesystem::is_empty(folder.path()));

    const nlohmann::json json = nlohmann::json::parse(io_bench_json(report));
    CHECK(json["rows"].size() == report.rows.size());
    CHECK(json["best"] == json["rows"][report.best]);
    CHECK(json["best"]["block_bytes"] == report.rows[report.best].block.value);
    CHECK(json["beside_fio"].is_null());
    const std::string text = io_bench_text(report);
    CHECK(std::count(text.begin(), text.end(), '\n') ==
          static_cast<long>(report.rows.size()) + 5 + (report.engine_missing.empty() ? 0 : 2));
    CHECK(text.find("  best\n") != std::string::npos);
}

TEST_CASE("a rate is that of the bytes which the process moved") {
    const TemporaryFolder folder;
    SwapPlace place;
    place.folders = {folder.path()};
    place.job_id = "rate";
    const SwapFiles swap(place, mib(16));
    const IoCell cell{IoEngine::kThreads, kib(256), 2, IoDirection::kWrite};
    const IoArena memory(mib(16));
    const auto written = [] {
        std::ifstream io("/proc/self/io");
        std::string name;
        for (double bytes = 0; io >> name >> bytes;)
            if (name == "write_bytes:") return bytes;
        return -1.0;
    };
    const double before = written();
    const auto start = Steady::now();
    std::optional<Steady::time_point> first;
    Steady::time_point last;
    const auto note_time = [&] {
        last = Steady::now();
        if (!first) first = last;
    };
    const IoFigure figure =
        measure_io(swap.files(), cell, memory.bytes(), std::chrono::milliseconds(200), note_time);
    const std::chrono::duration<double> whole = Steady::now() - start;
    REQUIRE(first);
    // WHOLE includes the time to open and close the engine, but the figure does not. The figure
    // includes all of INSIDE.
    const std::chrono::duration<double> inside = last - *first;
    CHECK(figure.bytes_per_s * whole.count() >= written() - before);
    CHECK(figure.bytes_per_s * inside.count() <= written() - before);
}

TEST_CASE("reading and writing at once moves both halves, and an error of either ends both") {
    const TemporaryFolder folder;
    SwapPlace place;
    place.folders = {folder.path()};
    place.job_id = "both";
    const SwapFiles swap(place, mib(32));
    const IoCell cell{IoEngine::kThreads, kib(256), 2, IoDirection::kRead};
    const IoArena memory(io_measure_bytes(cell) * 2);
    const auto second_half = memory.bytes().subspan(memory.bytes().size() / 2);
    std::fill(second_half.begin(), second_half.end(), std::byte{0x5A});
    const IoFigure figure =
        measure_io_both(swap.files(), cell, memory.bytes(), std::chrono::milliseconds(100), [] {});
    CHECK(figure.bytes_per_s > 0);
    std::byte bytes[2]{};
    const int fd = swap.files().files[0].fd.get();
    const IoArena block(kib(4));
    for (const int64_t at : {int64_t{0}, mib(16).value}) {
        REQUIRE(::pread(fd, block.bytes().data(), 4096, at) == 4096);
        bytes[at > 0 ? 1 : 0] = block.bytes()[7];
    }
    CHECK(bytes[0] == std::byte{0});
    CHECK(bytes[1] == std::byte{0x5A});
    // If it ran for the whole hour, that would be a hang.
    CHECK_THROWS_WITH(measure_io_both(swap.files(), cell, memory.bytes(), std::chrono::hours(1),
                                      [] { throw std::runtime_error("Ctrl-C"); }),
                      "Ctrl-C");
}

TEST_CASE("the best setting runs beside fio where it is installed") {
    if (!find_fio())
        return report_skipped("io-bench beside fio", "fio is not installed (apt-get install fio)");
    const TemporaryFolder folder;
    IoBenchOptions options = small(folder);
    options.with_fio = true;
    const IoBenchReport report = run_io_bench(
        options, [] {}, kSilent);
    REQUIRE((report.fio && report.beside_fio));
    CHECK(report.fio->read.bytes_per_s > 0);
    CHECK(report.fio->write.cpu_s_per_gb > 0);
    CHECK(report.fio->block == report.rows[report.best].block);
    CHECK(io_bench_text(report).find("\nratio ") != std::string::npos);
    CHECK(nlohmann::json::parse(io_bench_json(report))["beside_fio"].size() == 2);
    REQUIRE(report.fio_both);
    CHECK(report.fio_both->bytes_per_s > 0);
    FioRequest request{
        "/bin/false", "io_uring", "x", mib(1), {}, false, std::chrono::milliseconds(1)};
    CHECK_THROWS_WITH(run_fio(request, [] {}), Catch::Contains("ended with status 1:"));
}

TEST_CASE("Ctrl-C ends io-bench at once and removes its file") {
    const TemporaryFolder folder;
    for (const bool in_fio : {false, true}) {
        if (in_fio && !find_fio()) continue;
        const ChildResult child = in_child([&]() -> std::string {
            hold_end_signals();
            Steady::time_point signalled;
            std::thread user([&] {
                const auto measures = [&] {
                    return in_fio ? !descendants(::getpid()).empty()
                                  : said_so_far().find(" times, about") != std::string::npos;
                };
                const bool came = wait_until(measures);
                if (came && !std::filesystem::is_empty(folder.path()))
                    static_cast<void>(write_full(2, std::string_view("the folder is in use\n")));
                signalled = Steady::now();
                ::kill(::getpid(), SIGINT);
            });
            std::string result = "not interrupted";
            std::vector<std::string> words = {"--size=16M", "--no-store", folder.path()};
            if (in_fio) {
                words.insert(words.end(), {"--turns=1", "--seconds=0.001", "--blocks=1M",
                                           "--depths=1", "--engines=threads"});
            } else {
                words.insert(words.end(), {"--turns=1000", "--seconds=1000"});
            }
            try {
                (void)io_bench_command(words);
            } catch (const Error& error) {
                result = error.code() == ExitCode::kInterrupted ? "" : error.what();
            }
            const auto ended = Steady::now();
            user.join();
            // One measurement alone would take 1000 s.
            return ended - signalled < kHangTime ? result : "late";
        });
        INFO(in_fio << child.err);
        CHECK(child.text == "");
        CHECK_THAT(child.err, Catch::Contains("the folder is in use"));
        CHECK(std::filesystem::is_empty(folder.path()));
    }
}

TEST_CASE("io-bench refuses what it cannot measure") {
    const TemporaryFolder folder;
    const auto run = [&](std::vector<std::string> words) {
        words.insert(words.begin(), folder.path());
        return in_child([&]() -> std::string {
                   (void)io_bench_command(words);
                   return "accepted";
               })
            .text;
    };
    CHECK_THAT(run({"--blocks=1000"}), Catch::Contains("--blocks: `1000` is not a multiple of 4K"));
    CHECK_THAT(run({"--blocks=100T"}),
               Catch::Contains("--blocks: `100T` is more than 16384.00 GiB"));
    CHECK_THAT(run({"--blocks="}), Catch::Contains("--blocks"));
    CHECK_THAT(run({"--depths=0"}), Catch::Contains("--depths: `0`"));
    CHECK_THAT(run({"--engines=libaio"}), Catch::Contains("neither io_uring nor threads"));
    CHECK_THAT(run({"--size=1X"}), Catch::Contains("--size"));
    CHECK_THAT(run({"--size=64K", "--no-store"}), Catch::Contains("no setting can be measured"));
    CHECK_THAT(run({"--size=8192G"}), Catch::Contains("are free there: free some space"));
    CHECK(std::filesystem::is_empty(folder.path()));
}

}  // namespace dslaunch::test
