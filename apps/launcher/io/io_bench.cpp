#include "launcher/io/io_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/median.h"
#include "base/text/json.h"
#include "storage/disk/io_arena.h"
#include "storage/swap/swap_files.h"

namespace dslaunch::launcher {
namespace {

constexpr Bytes kInFlightMax = mib(64);  // settings with more bytes in flight are left out
constexpr double kAsGood = 0.97;
constexpr std::chrono::milliseconds kRest{1000};

// Fills BYTES with pseudo-random values, because some disks do not really write zeros.
void fill_with_noise(std::span<std::byte> bytes) {
    uint64_t state = 1;
    for (size_t i = 0; i < bytes.size(); i += sizeof(state)) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        std::memcpy(bytes.data() + i, &state, sizeof(state));
    }
}

IoFigure median_figure(const std::vector<IoFigure>& figures) {
    std::vector<double> rates, costs;
    for (const IoFigure& figure : figures) {
        rates.push_back(figure.bytes_per_s);
        costs.push_back(figure.cpu_s_per_gb);
    }
    return {median_of(rates, Middle::kMean), median_of(costs, Middle::kMean)};
}

std::vector<IoRow> rows_of(const IoBenchOptions& options, bool has_uring) {
    std::vector<IoRow> rows;
    for (const storage::IoEngine engine : options.engines) {
        if (engine == storage::IoEngine::kUring && !has_uring) continue;
        for (const Bytes block : options.blocks) {
            for (const int depth : options.depths) {
                const IoCell cell{engine, block, depth, storage::IoDirection::kRead};
                if (block * depth <= kInFlightMax && io_measure_bytes(cell) <= options.length)
                    rows.push_back({engine, block, depth, {}, {}});
            }
        }
    }
    return rows;
}

// Returns the reason why io_uring is not available, or an empty text if it is.
std::string uring_missing(const storage::BackingFiles& files) {
    try {
        static_cast<void>(storage::open_block_file(files, storage::IoEngine::kUring, {}));
        return {};
    } catch (const Error& error) {
        return error.what();
    }
}

class Bench {
  public:
    Bench(const IoBenchOptions& options, const storage::BackingFiles& files,
          const std::function<void()>& check)
        : options_(options), files_(files), check_(check) {}

    // Writes the whole file once. Blocks that were never written have no contents: reading them
    // would seem faster than any disk can be, and the first write of each block takes longer.
    void write_all(const std::vector<IoRow>& rows) {
        Bytes need{0};
        for (const IoRow& row : rows)
            need = std::max(need, io_measure_bytes(cell_of(row, storage::IoDirection::kWrite)));
        arena_ = storage::IoArena(need);
        fill_with_noise(arena_.bytes());
        const auto file = storage::open_block_file(files_, storage::IoEngine::kThreads, {});
        for (int64_t at = 0; at < files_.capacity.value; at += need.value) {
            check_();
            const auto length =
                static_cast<size_t>(std::min(need.value, files_.capacity.value - at));
            const storage::IoResult result =
                file->submit(storage::write_request(at, arena_.bytes().first(length))).wait();
            if (!result.has_moved(static_cast<int64_t>(length)))
                fail(ExitCode::kDisk, "{}: cannot write {} at {}: {}", file->path_at(at),
                     to_text(Bytes{static_cast<int64_t>(length)}), at,
                     errno_text(-result.error_number));
        }
    }

    void sweep(std::vector<IoRow>& rows) {
        std::vector<std::vector<IoFigure>> reads(rows.size()), writes(rows.size());
        for (int turn = 0; turn < options_.turns; ++turn) {
            for (size_t i = 0; i < rows.size(); ++i) {
                writes[i].push_back(
                    measure(rows[i], storage::IoDirection::kWrite, options_.cell_time));
                reads[i].push_back(
                    measure(rows[i], storage::IoDirection::kRead, options_.cell_time));
            }
        }
        for (size_t i = 0; i < rows.size(); ++i) {
            rows[i].read = median_figure(reads[i]);
            rows[i].write = median_figure(writes[i]);
        }
    }

    void beside_fio(const std::string& program, IoBenchReport& report) {
        IoRow ours = report.rows[report.best];
        IoRow theirs = ours;
        FioRequest request{program, report.fio_engine, files_.files[0].path, report.length, {},
                           false,   options_.fio_time};
        for (const storage::IoDirection direction :
             {storage::IoDirection::kWrite, storage::IoDirection::kRead}) {
            std::vector<IoFigure> our_figures, their_figures;
            request.cell = cell_of(ours, direction);
            for (int turn = 0; turn < options_.turns; ++turn) {
                rest();
                our_figures.push_back(measure(ours, direction, options_.fio_time));
                rest();
                their_figures.push_back(run_fio(request, check_));
            }
            const bool reads = direction == storage::IoDirection::kRead;
            (reads ? ours.read : ours.write) = median_figure(our_figures);
            (reads ? theirs.read : theirs.write) = median_figure(their_figures);
        }
        report.beside_fio = ours;
        report.fio = theirs;
    }

    void both_ways(const std::optional<std::string>& program, IoBenchReport& report) {
        const IoRow& row = report.rows[report.best];
        const IoCell cell = cell_of(row, storage::IoDirection::kRead);
        const storage::IoArena memory(io_measure_bytes(cell) * 2);
        fill_with_noise(memory.bytes());
        std::vector<IoFigure> our_figures, their_figures;
        for (int turn = 0; turn < options_.turns; ++turn) {
            rest();
            our_figures.push_back(
                measure_io_both(files_, cell, memory.bytes(), options_.fio_time, check_));
            if (!program) continue;
            rest();
            FioRequest request{
                *program, report.fio_engine, files_.files[0].path, report.length, cell,
                true,     options_.fio_time};
            their_figures.push_back(run_fio(request, check_));
        }
        report.both = median_figure(our_figures);
        if (program) report.fio_both = median_figure(their_figures);
    }

  private:
    // Waits a moment before each measurement. A disk with a rate limit is faster after idle time.
    // The disk is also idle while fio starts, so fio would otherwise have an advantage.
    void rest() const {
        const auto end = std::chrono::steady_clock::now() + kRest;
        while (std::chrono::steady_clock::now() < end) {
            check_();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }
    static IoCell cell_of(const IoRow& row, storage::IoDirection direction) {
        return {row.engine, row.block, row.depth, direction};
    }
    [[nodiscard]] IoFigure measure(const IoRow& row, storage::IoDirection direction,
                                   Duration duration) const {
        return measure_io(files_, cell_of(row, direction), arena_.bytes(), duration, check_);
    }

    const IoBenchOptions& options_;
    const storage::BackingFiles& files_;
    const std::function<void()>& check_;
    storage::IoArena arena_;
};

double rate_of(const IoRow& row) {
    return 2 / (1 / row.read.bytes_per_s + 1 / row.write.bytes_per_s);
}

constexpr double kGb = 1e9;

std::string short_bytes(Bytes bytes) {
    if (bytes.value % mib(1).value == 0) return fmt::format("{}M", bytes.value >> 20);
    return fmt::format("{}K", bytes.value >> 10);
}

std::string figures_text(const IoRow& row) {
    return fmt::format("{:>9.2f} {:>10.1f} {:>11.2f} {:>10.1f}", row.read.bytes_per_s / kGb,
                       row.read.cpu_s_per_gb * 1000, row.write.bytes_per_s / kGb,
                       row.write.cpu_s_per_gb * 1000);
}

void add_figure(JsonWriter& json, const char* name, const IoFigure& figure) {
    json.key(name)
        .begin_object()
        .field("bytes_per_s", figure.bytes_per_s)
        .field("cpu_s_per_gb", figure.cpu_s_per_gb)
        .end_object();
}

void add_row(JsonWriter& json, const IoRow& row, const std::string& engine) {
    json.begin_object()
        .field("engine", engine)
        .field("block_bytes", row.block.value)
        .field("depth", row.depth);
    add_figure(json, "read", row.read);
    add_figure(json, "write", row.write);
    json.end_object();
}

}  // namespace

size_t best_io_row(const std::vector<IoRow>& rows) {
    DSL_CHECK(!rows.empty(), "no rows");
    double rate_max = 0;
    for (const IoRow& row : rows) rate_max = std::max(rate_max, rate_of(row));
    size_t best = rows.size();
    const auto cost = [](const IoRow& row) {
        return row.read.cpu_s_per_gb + row.write.cpu_s_per_gb;
    };
    for (size_t i = 0; i < rows.size(); ++i) {
        if (rate_of(rows[i]) < kAsGood * rate_max) continue;
        if (best == rows.size() || cost(rows[i]) < cost(rows[best])) best = i;
    }
    return best;
}

storage::IoSettings io_settings_of(const IoRow& row) {
    return {row.engine, row.block, row.depth, row.read.bytes_per_s, row.write.bytes_per_s};
}

IoBenchReport run_io_bench(const IoBenchOptions& options, const std::function<void()>& check,
                           const std::function<void(const std::string&)>& say) {
    IoBenchReport report;
    report.folder = options.folder;
    report.disk = storage::disk_facts(options.folder);
    report.length = options.length;
    report.turns = options.turns;
    storage::SwapPlace place;
    place.folders = {options.folder};
    place.job_id = fmt::format("io-bench-{}", ::getpid());
    const storage::SwapFiles swap(place, options.length);
    report.direct = swap.files().files[0].is_direct;
    report.engine_missing = uring_missing(swap.files());
    report.rows = rows_of(options, report.engine_missing.empty());
    if (report.rows.empty())
        fail(ExitCode::kUsage,
             "no setting can be measured: give a larger --size, smaller --blocks or --depths, or "
             "other --engines");
    Bench bench(options, swap.files(), check);
    say(fmt::format("writing a file of {}", to_text(options.length)));
    bench.write_all(report.rows);
    say(fmt::format("measuring {} settings {} times, about {:.0f} s", report.rows.size(),
                    options.turns,
                    std::chrono::duration<double>(options.cell_time).count() * 2 * options.turns *
                        static_cast<double>(report.rows.size())));
    bench.sweep(report.rows);
    report.best = best_io_row(report.rows);
    const auto fio = options.with_fio ? find_fio() : std::nullopt;
    if (fio) {
        report.fio_engine = report.engine_missing.empty() ? "io_uring" : "libaio";
        say("comparing the best setting with fio");
        bench.beside_fio(*fio, report);
    }
    say("measuring the best setting, reading and writing at once");
    bench.both_ways(fio, report);
    return report;
}

std::string io_bench_text(const IoBenchReport& report) {
    std::string text = fmt::format(
        "{}: disk {} ({}), a file of {}, {}, medians of {} measurements\n\n", report.folder,
        report.disk.id, report.disk.device.empty() ? "no block device" : report.disk.device,
        to_text(report.length), report.direct ? "O_DIRECT" : "through the page cache",
        report.turns);
    const std::string head = "read GB/s  CPU ms/GB  write GB/s  CPU ms/GB\n";
    text += fmt::format("{:<10}{:>6}{:>7}  {}", "engine", "block", "depth", head);
    for (size_t i = 0; i < report.rows.size(); ++i) {
        const IoRow& row = report.rows[i];
        text += fmt::format("{:<10}{:>6}{:>7}  {}{}\n", storage::io_engine_name(row.engine),
                            short_bytes(row.block), row.depth, figures_text(row),
                            i == report.best ? "  best" : "");
    }
    if (!report.engine_missing.empty())
        text += fmt::format("\nio_uring was not measured: {}\n", report.engine_missing);
    if (report.fio && report.beside_fio) {
        text += fmt::format("\n{:<23}  {}", "best setting and fio", head);
        text += fmt::format("{:<23}  {}\n", "dslaunch", figures_text(*report.beside_fio));
        text += fmt::format("{:<23}  {}\n", "fio " + report.fio_engine, figures_text(*report.fio));
        const auto ratio = [](double ours, double theirs) { return ours / theirs; };
        text += fmt::format(
            "{:<23}  {:>9.2f} {:>10.2f} {:>11.2f} {:>10.2f}\n", "ratio",
            ratio(report.beside_fio->read.bytes_per_s, report.fio->read.bytes_per_s),
            ratio(report.beside_fio->read.cpu_s_per_gb, report.fio->read.cpu_s_per_gb),
            ratio(report.beside_fio->write.bytes_per_s, report.fio->write.bytes_per_s),
            ratio(report.beside_fio->write.cpu_s_per_gb, report.fio->write.cpu_s_per_gb));
    }
    text += fmt::format("\nreading and writing at once: {:.2f} GB/s, {:.1f} CPU ms/GB",
                        report.both.bytes_per_s / kGb, report.both.cpu_s_per_gb * 1000);
    if (report.fio_both) {
        text +=
            fmt::format("; fio {:.2f}, {:.1f}; ratio {:.2f}, {:.2f}",
                        report.fio_both->bytes_per_s / kGb, report.fio_both->cpu_s_per_gb * 1000,
                        report.both.bytes_per_s / report.fio_both->bytes_per_s,
                        report.both.cpu_s_per_gb / report.fio_both->cpu_s_per_gb);
    }
    return text + "\n";
}

std::string io_bench_json(const IoBenchReport& report) {
    JsonWriter json;
    json.begin_object()
        .field("folder", report.folder)
        .field("disk", report.disk.id)
        .field("device", report.disk.device)
        .field("disk_bytes", report.disk.capacity.value)
        .field("file_bytes", report.length.value)
        .field("direct", report.direct)
        .field("turns", report.turns);
    json.key("rows").begin_array();
    for (const IoRow& row : report.rows) add_row(json, row, storage::io_engine_name(row.engine));
    json.end_array().key("best");
    add_row(json, report.rows[report.best],
            storage::io_engine_name(report.rows[report.best].engine));
    json.key("io_uring_missing");
    report.engine_missing.empty() ? json.null() : json.value(report.engine_missing);
    json.key("beside_fio");
    if (report.fio && report.beside_fio) {
        json.begin_array();
        add_row(json, *report.beside_fio, storage::io_engine_name(report.beside_fio->engine));
        add_row(json, *report.fio, "fio " + report.fio_engine);
        json.end_array();
    } else {
        json.null();
    }
    add_figure(json, "both_at_once", report.both);
    if (report.fio_both) add_figure(json, "both_at_once_fio", *report.fio_both);
    json.end_object();
    return json.text() + "\n";
}

}  // namespace dslaunch::launcher
