#include "launcher/report/metrics_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/median.h"

namespace dslaunch::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kMetricsLineMax = 1U << 20;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Collects the numbers of one line. Makes no JSON document of the line, because a file may have
// 100,000 lines.
class LineNumbers final : public nlohmann::json_sax<Json> {
  public:
    std::vector<std::pair<std::string, double>> values;
    std::optional<double> step;
    bool is_training = false;  // the line has a loss: it is the line of a training step
    bool is_skipped = false;

    bool null() override { return take(kNone); }
    bool boolean(bool flag) override {
        if (depth_ == 1 && key_ == "skipped") is_skipped = flag;
        return true;
    }
    bool number_integer(Json::number_integer_t number) override {
        return take(static_cast<double>(number));
    }
    bool number_unsigned(Json::number_unsigned_t number) override {
        return take(static_cast<double>(number));
    }
    bool number_float(Json::number_float_t number, const std::string& /*text*/) override {
        return take(number);
    }
    bool string(std::string& /*text*/) override { return true; }
    bool binary(Json::binary_t& /*bytes*/) override { return true; }
    bool start_object(size_t /*elements*/) override {
        if (++depth_ == 2) parent_ = key_;
        return true;
    }
    bool key(std::string& name) override {
        key_ = name;
        return true;
    }
    bool end_object() override {
        --depth_;
        return true;
    }
    bool start_array(size_t /*elements*/) override {
        ++arrays_;
        return true;
    }
    bool end_array() override {
        --arrays_;
        return true;
    }
    bool parse_error(size_t /*at*/, const std::string& /*token*/,
                     const Json::exception& /*error*/) override {
        return false;
    }

  private:
    bool take(double number) {
        if (arrays_ > 0 || depth_ < 1 || depth_ > 2) return true;
        if (depth_ == 1 && key_ == "step") {
            if (number >= 0) step = number;
            return true;
        }
        if (depth_ == 1 && key_ == "loss") is_training = true;
        values.emplace_back(depth_ == 1 ? key_ : parent_ + "." + key_, number);
        return true;
    }

    int depth_ = 0, arrays_ = 0;
    std::string key_, parent_;
};

// Adds the lines of a file to a table.
class TableReader {
  public:
    explicit TableReader(MetricsTable& table) : table_(table) {}

    void add(std::string_view line) {
        LineNumbers numbers;
        if (line.size() > kMetricsLineMax || !Json::sax_parse(line, &numbers) || !numbers.step) {
            ++table_.damaged_lines;
            return;
        }
        const double step = *numbers.step;
        if (numbers.is_training) {
            if (step <= newest_) drop_from(step);
            newest_ = step;
            if (numbers.is_skipped) ++table_.skipped_steps;
        }
        for (const auto& [name, value] : numbers.values) add(name, {step, value});
    }

  private:
    void add(const std::string& name, MetricPoint point) {
        auto found = table_.series.find(name);
        if (found == table_.series.end()) {
            if (table_.series.size() >= MetricsTable::kNamesMax) {
                table_.has_more_names = true;
                return;
            }
            found = table_.series.try_emplace(name).first;
        }
        MetricSeries& series = found->second;
        while (!series.empty() && series.back().step >= point.step) series.pop_back();
        series.push_back(point);
    }

    // Removes the points of STEP and of later steps: a restarted job does these steps again.
    void drop_from(double step) {
        table_.repeated_steps += static_cast<int64_t>(newest_ - step) + 1;
        for (auto& [name, series] : table_.series)
            while (!series.empty() && series.back().step >= step) series.pop_back();
    }

    MetricsTable& table_;
    double newest_ = -1;
};

template <typename Better>
std::optional<MetricPoint> best_of(const MetricSeries* series, Better better) {
    std::optional<MetricPoint> best;
    if (series == nullptr) return best;
    for (const MetricPoint& point : *series)
        if (std::isfinite(point.value) && (!best || better(point.value, best->value))) best = point;
    return best;
}

}  // namespace

const MetricSeries* MetricsTable::find(std::string_view name) const {
    const auto found = series.find(name);
    return found == series.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<double> MetricsTable::last(std::string_view name) const {
    const MetricSeries* const points = find(name);
    if (points == nullptr) return std::nullopt;
    const auto found = std::find_if(points->rbegin(), points->rend(), [](const MetricPoint& point) {
        return std::isfinite(point.value);
    });
    return found == points->rend() ? std::nullopt : std::optional(found->value);
}

std::optional<MetricPoint> MetricsTable::least(std::string_view name) const {
    return best_of(find(name), std::less<>());
}

std::optional<MetricPoint> MetricsTable::largest(std::string_view name) const {
    return best_of(find(name), std::greater<>());
}

std::optional<double> MetricsTable::median(std::string_view name) const {
    const MetricSeries* const points = find(name);
    std::vector<double> values;
    for (size_t i = 0; points != nullptr && i < points->size(); ++i)
        if (std::isfinite((*points)[i].value) && (i > 0 || points->size() == 1))
            values.push_back((*points)[i].value);
    if (values.empty()) return std::nullopt;
    return median_of(std::move(values), Middle::kUpper);
}

MetricsTable read_metrics_table(std::istream& text) {
    MetricsTable table;
    TableReader reader(table);
    std::string line;
    while (std::getline(text, line))
        if (!line.empty()) reader.add(line);
    return table;
}

}  // namespace dslaunch::launcher
