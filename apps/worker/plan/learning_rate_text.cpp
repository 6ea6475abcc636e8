#include "worker/plan/plan_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/text/json.h"
#include "runtime/schedules/learning_rate.h"

namespace dslaunch::worker {

namespace {

constexpr int64_t kColumns = 64, kRows = 12;

struct Span {
    double low = INFINITY, high = 0;
};

class Curve {
  public:
    explicit Curve(const config::RunConfig& config) : config_(config) {
        for (int64_t step = 1; step <= config.steps; ++step) {
            const double lr = rate(step);
            if (lr > rate(highest_)) highest_ = step;
            Span& span = spans_[static_cast<size_t>((step - 1) * columns() / config.steps)];
            span.low = std::min(span.low, lr);
            span.high = std::max(span.high, lr);
        }
    }

    [[nodiscard]] std::string text() const {
        const double top = rate(highest_);
        std::string text = fmt::format("learning rate over {} steps\n", config_.steps);
        for (int64_t row = kRows - 1; row >= 0; --row) {
            const bool labelled = row == kRows - 1 || row == kRows / 2 || row == 0;
            const double at = top * static_cast<double>(row) / (kRows - 1);
            std::string line =
                labelled ? fmt::format("{:>10.3g} |", at) : fmt::format("{:>12}", "|");
            for (const Span& span : spans_)
                line += row_of(span.low, top) <= row && row <= row_of(span.high, top) ? '*' : ' ';
            text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        }
        const auto width = static_cast<size_t>(columns());
        text += fmt::format("{:>12}{:->{}}\n{:>12}1{:>{}}\n", "+", "", width, "", config_.steps,
                            width - 1);
        text +=
            row_text("first", 1) + row_text("highest", highest_) + row_text("last", config_.steps);
        return text;
    }

  private:
    [[nodiscard]] int64_t columns() const {
        return std::min(kColumns, std::max<int64_t>(config_.steps, 8));
    }
    [[nodiscard]] double rate(int64_t step) const {
        return runtime::learning_rate(config_.scheduler, config_.optimizer.lr, step - 1);
    }
    [[nodiscard]] static int64_t row_of(double lr, double top) {
        return top > 0 ? std::llround(lr / top * (kRows - 1)) : 0;
    }
    [[nodiscard]] std::string row_text(const char* what, int64_t step) const {
        std::string text = fmt::format("  {:<8} step {:<10} {:.6g}", what, step, rate(step));
        if (const auto betas = runtime::scheduled_betas(config_.scheduler, step - 1))
            text += fmt::format("   betas {:.4g}, {:.4g}", betas->beta1, betas->beta2);
        return text + "\n";
    }

    const config::RunConfig& config_;
    int64_t highest_ = 1;
    std::vector<Span> spans_ = std::vector<Span>(static_cast<size_t>(columns()));
};

std::string rates_json(const config::RunConfig& config) {
    constexpr int64_t kMost = 1000;
    const int64_t count = std::min(config.steps, kMost);
    JsonWriter json;
    json.begin_object().key("steps").begin_array();
    for (int64_t i = 0; i < count; ++i) {
        const int64_t step = count == 1 ? 1 : 1 + i * (config.steps - 1) / (count - 1);
        json.begin_object().field("step", step);
        json.field("lr", runtime::learning_rate(config.scheduler, config.optimizer.lr, step - 1));
        if (const auto betas = runtime::scheduled_betas(config.scheduler, step - 1))
            json.key("betas").begin_array().value(betas->beta1).value(betas->beta2).end_array();
        json.end_object();
    }
    return json.end_array().end_object().text() + "\n";
}

}  // namespace

std::string learning_rate_text(const config::RunConfig& config, bool json) {
    if (config.steps <= 0)
        fail(ExitCode::kUsage,
             "--lr: the number of steps is not known: add `--set dslaunch.steps=N`, or `--set "
             "dslaunch.epochs=N` and --data FILE");
    return json ? rates_json(config) : Curve(config).text();
}

}  // namespace dslaunch::worker
