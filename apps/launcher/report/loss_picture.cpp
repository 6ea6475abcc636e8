#include "launcher/report/loss_picture.h"

#include <exception>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/log.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/text.h"

namespace dslaunch::launcher {
namespace {

namespace fs = std::filesystem;

// Returns true if the file at PATH is missing or begins like a picture that was written here.
bool may_replace(const std::string& path) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (!fs::exists(status)) return true;
    if (!fs::is_regular_file(status)) return false;  // opening a FIFO would block
    std::ifstream file(path);
    std::string prolog, root;
    if (!file) return true;
    return std::getline(file, prolog) && std::getline(file, root) &&
           root.find("class=\"chart\"") != root.npos;
}

}  // namespace

Chart loss_chart(const MetricsTable& table) {
    Chart chart{"Loss", "", ScaleWish::kLogIfWide, {}};
    if (const MetricSeries* const loss = table.find("loss"))
        chart.curves.push_back({"loss", {0, 0}, *loss, false});
    if (const MetricSeries* const held_out = table.find("eval_loss"))
        chart.curves.push_back({"held-out loss", {1, 0}, *held_out, true});
    return chart;
}

void write_loss_picture(const std::string& folder) {
    const std::string path = folder + "/loss.svg";
    try {
        std::ifstream file(folder + "/metrics.jsonl");
        if (!file) return;
        const Chart chart = loss_chart(read_metrics_table(file));
        const bool is_curve = !chart.curves.empty() && chart.curves.front().points.size() > 1;
        if (is_curve && has_values(chart) && may_replace(path))
            write_file_atomically(path, chart_document(chart, {720, 340}));
    } catch (const std::exception& error) {
        log_warn("launch", "{}: no picture of the loss: {}", printable(path_from_here(path)),
                 error.what());
    }
}

}  // namespace dslaunch::launcher
