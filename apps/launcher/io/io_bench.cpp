#include "launcher/io/io_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "storage/disk/io_arena.h"
#include "storage/swap/swap_files.h"

namespace dslaunch::launcher {
namespace {

constexpr Bytes kInFlightMax = mib(64);  // settings that keep more in flight are left out
constexpr double kAsGood = 0.97;
constexpr std::chrono::milliseconds kRest{1000};

// Fills BYTES with pseudo-random values, for some disks do not write zeros.
void fill_with_noise(std::span<std::byte> bytes) {
    uint64_t state = 1;
    for (size_t i = 0; i < bytes.size(); i += sizeof(state)) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        std::memcpy(bytes.data() + i, &state, sizeof(state));
    }
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

IoFigure median_of(const std::vector<IoFigure>& figures) {
    std::vector<double> rates, costs;
    for (const IoFigure& figure : figures) {
        rates.push_back(figure.bytes_per_s);
        costs.push_back(figure.cpu_s_per_gb);
    }
    return {median(rates), median(costs)};
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

// The reason why io_uring is not available; empty: it is.
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

    // Writes the file once: blocks that were never written read faster than any disk, and cost more
    // to write.
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
            if (!result.moved(static_cast<int64_t>(length)))
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
            rows[i].read = median_of(reads[i]);
            rows[i].write = median_of(writes[i]);
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
            (reads ? ours.read : ours.write) = median_of(our_figures);
            (reads ? theirs.read : theirs.write) = median_of(their_figures);
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
        report.both = median_of(our_figures);
        if (program) report.fio_both = median_of(their_figures);
    }

  private:
    // Waits, for a disk with a rate limit gives credit for idle time, and fio takes some time to
    // start.
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
    report.direct = swap.files().files[0].direct;
    report.engine_missing = uring_missing(swap.files());
    report.rows = rows_of(options, report.engine_missing.empty());
    if (report.rows.empty())
        fail(ExitCode::kUsage,
             "no setting is left: give a larger --size, smaller --blocks or "
             "--depths, or another --engines");
    Bench bench(options, swap.files(), check);
    say(fmt::format("writing a file of {}", to_text(options.length)));
    bench.write_all(report.rows);
    say(fmt::format("{} settings, {} turns, about {:.0f} s", report.rows.size(), options.turns,
                    std::chrono::duration<double>(options.cell_time).count() * 2 * options.turns *
                        static_cast<double>(report.rows.size())));
    bench.sweep(report.rows);
    report.best = best_io_row(report.rows);
    const auto fio = options.with_fio ? find_fio() : std::nullopt;
    if (fio) {
        report.fio_engine = report.engine_missing.empty() ? "io_uring" : "libaio";
        say("the best one beside fio");
        bench.beside_fio(*fio, report);
    }
    say("the best one, reading and writing at once");
    bench.both_ways(fio, report);
    return report;
}

}  // namespace dslaunch::launcher
