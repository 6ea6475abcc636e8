// `dslaunch io-bench PATH`: measures the disk that holds PATH and stores the best settings for it.
#include <fmt/core.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/byte_size.h"
#include "base/text/command_line.h"
#include "launch/process/standard_streams.h"
#include "launch/supervise/job.h"
#include "launcher/io/io_bench.h"
#include "launcher/run/commands.h"
#include "storage/disk/block_file.h"

namespace dslaunch::launcher {
namespace {

constexpr int64_t kLengthMax = int64_t{1} << 44;
constexpr int kDepthMax = 4096;

struct IoBenchArguments {
    std::string folder;
    std::string length = "1G";
    std::string blocks = "128K,512K,1M,4M";
    std::string depths = "1,4,16,32";
    std::string engines = "io_uring,threads";
    int turns = 3;
    double seconds = 0.2;
    bool no_fio = false;
    bool no_store = false;
    bool json = false;
};

Bytes parse_bytes(const std::string& text, const char* option) {
    const auto bytes = parse_byte_size(text);
    if (bytes && *bytes > kLengthMax)
        fail(ExitCode::kUsage, "{}: `{}` is more than {}, the most that can be measured", option,
             printable(text), to_text(Bytes{kLengthMax}));
    if (!bytes || *bytes < 1 || *bytes % storage::kBlockAlignment != 0) {
        fail(ExitCode::kUsage, "{}: `{}` is not a multiple of 4K above 0, such as 128K, 1M or 2G",
             option, printable(text));
    }
    return Bytes{*bytes};
}

IoBenchOptions options_of(const IoBenchArguments& arguments) {
    IoBenchOptions options;
    options.folder = arguments.folder;
    options.length = parse_bytes(arguments.length, "--size");
    options.blocks.clear();
    for (const std::string& block : split(arguments.blocks, ','))
        options.blocks.push_back(parse_bytes(block, "--blocks"));
    options.depths.clear();
    for (const std::string& text : split(arguments.depths, ',')) {
        const auto depth = parse_int(text);
        if (!depth || *depth < 1 || *depth > kDepthMax)
            fail(ExitCode::kUsage, "--depths: `{}` is not a number from 1 to {}", printable(text),
                 kDepthMax);
        options.depths.push_back(static_cast<int>(*depth));
    }
    options.engines.clear();
    for (const std::string& name : split(arguments.engines, ',')) {
        if (name != "io_uring" && name != "threads")
            fail(ExitCode::kUsage, "--engines: `{}` is neither io_uring nor threads",
                 printable(name));
        options.engines.push_back(storage::parse_io_engine(name));
    }
    options.turns = arguments.turns;
    options.cell_time = Duration(static_cast<int64_t>(arguments.seconds * 1e9));
    options.with_fio = !arguments.no_fio;
    return options;
}

void bench(const IoBenchArguments& arguments) {
    const IoBenchOptions options = options_of(arguments);
    const UniqueFd signals = launch::open_end_signals();  // opened before any thread starts:
                                                          // threads inherit the mask
    const auto check = [&] {
        signalfd_siginfo info{};
        if (::read(signals.get(), &info, sizeof(info)) != sizeof(info)) return;
        fail(ExitCode::kInterrupted, "io-bench was interrupted; its file in {} has been removed",
             options.folder);
    };
    const IoBenchReport report = run_io_bench(options, check, [](const std::string& stage) {
        launch::write_last_words(fmt::format("io-bench: {}\n", stage));
    });
    fmt::print("{}", arguments.json ? io_bench_json(report) : io_bench_text(report));
    if (arguments.no_store) return;
    const std::string path = storage::io_settings_path();
    if (path.empty())
        fail(ExitCode::kSetup,
             "cannot store the best setting: neither XDG_CACHE_HOME nor HOME is set to a folder; "
             "with --no-store, io-bench only prints the table");
    storage::store_io_settings(path, report.disk.id, io_settings_of(report.rows[report.best]));
    print_message(
        fmt::format("io-bench: stored the best setting for disk {} in {}", report.disk.id, path));
}

}  // namespace

int io_bench_command(std::span<const std::string> arguments) {
    IoBenchArguments parsed;
    CommandLine app(
        {.does = "Measures how fast the disk that contains PATH reads and writes, compares it with "
                 "fio if fio is installed, and stores the best settings. Training with offload to "
                 "nvme then uses these settings.",
         .examples = {"dslaunch io-bench /nvme", "dslaunch io-bench /nvme --size 8G --no-store"},
         .docs = "docs/scale/offload.md"},
        "dslaunch io-bench");
    app.add("PATH", parsed.folder, "a folder on the disk, such as nvme_path").required();
    app.add("--size BYTES", parsed.length, "size of the file to write, default 1G");
    app.add("--blocks LIST", parsed.blocks, "block sizes in bytes, default 128K,512K,1M,4M");
    app.add("--depths LIST", parsed.depths, "numbers of blocks in flight, default 1,4,16,32");
    app.add("--engines LIST", parsed.engines, "I/O engines, default io_uring,threads");
    app.add("--turns N", parsed.turns, "measurements per setting; their median is shown, default 3")
        .range(1, 1000);
    app.add("--seconds SECONDS", parsed.seconds, "duration of one measurement, default 0.2")
        .range(0.001, 3600.0);
    app.add("--no-fio", parsed.no_fio, "do not run fio");
    app.add("--no-store", parsed.no_store, "do not store the best settings");
    app.add("--json", parsed.json, "one JSON object");
    if (app.parse({arguments.begin(), arguments.end()})) bench(parsed);
    return 0;
}

}  // namespace dslaunch::launcher
