// The results of io-bench, as text and as JSON.
#include <fmt/format.h>

#include "base/text/json.h"
#include "launcher/io/io_bench.h"

namespace dslaunch::launcher {
namespace {

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

std::string io_bench_text(const IoBenchReport& report) {
    std::string text = fmt::format(
        "{}: disk {} ({}), a file of {}, {}, medians of {} turns\n\n", report.folder,
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
        text += fmt::format("\nio_uring is left out: {}\n", report.engine_missing);
    if (report.fio && report.beside_fio) {
        text += fmt::format("\n{:<23}  {}", "the best beside fio", head);
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
