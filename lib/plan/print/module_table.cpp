#include "plan/print/module_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string_view>

#include "base/text.h"
#include "base/text/text_table.h"

namespace dslaunch::plan {
namespace {

// A module with everything inside it.
struct Module {
    std::string name;  // the last part of its path
    std::string path;
    int64_t parameters = 0;
    ModuleCost own;
    int64_t flops = 0;  // includes all modules inside; so do the times
    Duration forward{0};
    Duration recompute{0};
    Duration backward{0};
    std::vector<std::unique_ptr<Module>> inside;

    Module& child(std::string_view wanted) {
        for (const auto& module : inside)
            if (module->name == wanted) return *module;
        Module& made = *inside.emplace_back(std::make_unique<Module>());
        made.name = wanted;
        made.path = path.empty() ? made.name : path + "." + made.name;
        return made;
    }
    Module& at(std::string_view below) {
        if (below.empty()) return *this;
        const size_t dot = below.find('.');
        Module& next = child(below.substr(0, dot));
        return dot == std::string_view::npos ? next : next.at(below.substr(dot + 1));
    }
    void sum() {
        flops = own.forward_flops;
        forward = own.forward;
        recompute = own.recompute;
        backward = own.backward;
        for (const auto& module : inside) {
            module->sum();
            parameters += module->parameters;
            flops += module->flops;
            forward += module->forward;
            recompute += module->recompute;
            backward += module->backward;
        }
    }
};

Module module_tree(const ModelInfo& model, std::span<const ModuleCost> costs) {
    Module root;
    for (const ModuleCost& cost : costs) root.at(cost.path).own = cost;
    std::vector<bool> is_used(model.parameters.size(), false);
    for (const SegmentInfo& segment : model.segments)
        for (const int parameter : segment.parameters) is_used[parameter] = true;
    for (size_t i = 0; i < model.parameters.size(); ++i) {
        const ParameterInfo& parameter = model.parameters[i];
        if (!is_used[i]) continue;  // read only by another stage, or not at all
        const size_t dot = parameter.name.rfind('.');
        Module& owner = dot == std::string::npos
                            ? root
                            : root.at(std::string_view(parameter.name).substr(0, dot));
        owner.parameters += parameter.weight_numel > 0 ? parameter.weight_numel : parameter.numel;
    }
    root.sum();
    return root;
}

// Returns a text such as "8.59 G", "134.5 M" or "812 ".
std::string scaled(double value) {
    constexpr std::array<std::string_view, 5> kUnits = {"", "K", "M", "G", "T"};
    size_t unit = 0;
    while (value >= 1e3 && unit + 1 < kUnits.size()) {
        value /= 1e3;
        ++unit;
    }
    return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

double ms_of(Duration time, int64_t micro_steps) {
    return to_milliseconds(time) / static_cast<double>(micro_steps);
}

std::string share_text(double part, double whole) {
    if (whole <= 0) return "-";
    const double share = 100 * part / whole;
    return share > 0 && share < 0.1 ? fmt::format("{:.2g} %", share)
                                    : fmt::format("{:.1f} %", share);
}

// Returns "1.23 TFLOP/s" for FLOPS in MS milliseconds; "-" if no time has passed.
std::string rate_text(double flops, double ms) {
    return ms <= 0 || flops <= 0 ? "-" : scaled(flops / (ms / 1e3)) + "FLOP/s";
}

class Tables {
  public:
    Tables(const Module& root, const ProfiledStep& step, const ModuleTableOptions& options)
        : root_(root), step_(step), options_(options) {}

    [[nodiscard]] std::string summary() const {
        const double flops = per_micro(root_.flops);
        const double forward = ms(root_.forward), backward = ms(root_.backward);
        const double recompute = ms(root_.recompute);
        const double all = to_milliseconds(step_.time);
        const auto steps = static_cast<double>(step_.micro_steps);
        const double whole_flops = 3 * flops * steps;
        std::vector<std::vector<std::string>> rows = {
            {fmt::format("step {}, after {}", step_.step, counted(step_.steps_done, "step"))},
            {"ranks", std::to_string(step_.world_size)},
            {"data parallel size", std::to_string(step_.data_parallel_size)},
            {"model parallel size", std::to_string(step_.model_parallel_size)},
            {"rows and micro steps of a rank",
             fmt::format("{} x {}", step_.micro_rows, step_.micro_steps)},
            {"params of this rank", scaled(static_cast<double>(root_.parameters))},
            {"fwd MACs per micro step", scaled(flops / 2) + "MACs"},
            {"fwd FLOPs per micro step (2 x MACs)", scaled(flops) + "FLOP"},
            {"fwd latency per micro step", fmt::format("{:.2f} ms", forward)},
            {"fwd FLOPS", rate_text(flops, forward)},
            {"bwd latency per micro step", fmt::format("{:.2f} ms", backward)},
            {"bwd FLOPS (2 x fwd FLOPs)", rate_text(2 * flops, backward)}};
        if (root_.recompute > Duration{0})
            rows.push_back(
                {"recompute latency per micro step", fmt::format("{:.2f} ms", recompute)});
        rows.push_back({"rest of the step: data, exchange, update, waits",
                        fmt::format("{:.2f} ms", std::max(0.0, all - steps * (forward + backward +
                                                                              recompute)))});
        rows.push_back({"step latency", fmt::format("{:.2f} ms", all)});
        rows.push_back({"FLOPS (3 x fwd FLOPs / step latency)", rate_text(whole_flops, all)});
        if (step_.peak_tflops > 0 && all > 0)
            rows.push_back(
                {"MFU", share_text(whole_flops / (all / 1e3), step_.peak_tflops * 1e12)});
        if (all > 0)
            rows.push_back({"samples/s of all ranks",
                            fmt::format("{:.2f}", static_cast<double>(step_.rows) / (all / 1e3))});
        return text_table(rows);
    }

    // Returns the largest modules of each level.
    [[nodiscard]] std::string levels() const {
        std::vector<std::map<std::string, Sum>> by_level;
        walk_levels(root_, 0, "", by_level);
        std::string text;
        for (size_t level = 1; level < by_level.size(); ++level) {
            text += fmt::format("level {}:\n", level);
            text += line(
                "params", by_level[level], [](const Sum& sum) { return sum.parameters; },
                [](double value) { return scaled(value); });
            text += line(
                "MACs", by_level[level], [](const Sum& sum) { return sum.flops / 2; },
                [](double value) { return scaled(value) + "MACs"; });
            text += line(
                "fwd latency", by_level[level], [](const Sum& sum) { return sum.forward_ms; },
                [](double value) { return fmt::format("{:.2f} ms", value); });
        }
        return text;
    }

    [[nodiscard]] std::string tree() const {
        std::vector<std::vector<std::string>> rows = {{"module", "params", "share", "MACs", "share",
                                                       "fwd ms", "share", "bwd ms", "share",
                                                       "fwd FLOPS"}};
        add_rows(root_, 0, rows);
        return text_table(rows, {.align = "<>>>>>>>>>"});
    }

  private:
    struct Sum {
        double parameters = 0;
        double flops = 0;
        double forward_ms = 0;
    };

    [[nodiscard]] double per_micro(int64_t flops) const {
        return static_cast<double>(flops) / static_cast<double>(step_.micro_steps);
    }
    [[nodiscard]] double ms(Duration time) const { return ms_of(time, step_.micro_steps); }
    [[nodiscard]] bool shows(int64_t level) const {
        return options_.module_depth < 0 || level <= options_.module_depth;
    }

    void walk_levels(const Module& module, size_t level, const std::string& pattern,
                     std::vector<std::map<std::string, Sum>>& by_level) const {
        if (!shows(static_cast<int64_t>(level))) return;
        if (by_level.size() <= level) by_level.resize(level + 1);
        Sum& sum = by_level[level][pattern];
        sum.parameters += static_cast<double>(module.parameters);
        sum.flops += per_micro(module.flops);
        sum.forward_ms += ms(module.forward);
        for (const auto& inside : module.inside) {
            const std::string name = parse_int(inside->name) ? "*" : inside->name;
            walk_levels(*inside, level + 1, pattern.empty() ? name : pattern + "." + name,
                        by_level);
        }
    }

    template <typename Measure, typename Show>
    [[nodiscard]] std::string line(std::string_view what, const std::map<std::string, Sum>& sums,
                                   const Measure& measure, const Show& show) const {
        std::vector<std::pair<double, std::string>> all;
        for (const auto& [pattern, sum] : sums) all.emplace_back(-measure(sum), pattern);
        std::ranges::sort(all);
        std::string text = fmt::format("    {:<11}", what);
        const auto top = std::min<size_t>(all.size(), static_cast<size_t>(options_.top_modules));
        for (size_t i = 0; i < top; ++i)
            text += fmt::format("{} {} {}", i == 0 ? "" : ",", all[i].second,
                                trimmed(show(-all[i].first)));
        return text + "\n";
    }
    static std::string trimmed(std::string text) {
        while (text.ends_with(' ')) text.pop_back();
        return text;
    }

    void add_rows(const Module& module, int64_t level,
                  std::vector<std::vector<std::string>>& rows) const {
        if (!shows(level)) return;
        const double flops = per_micro(module.flops);
        const std::string name = module.name.empty() ? "model" : module.name;
        rows.push_back({std::string(2 * static_cast<size_t>(level), ' ') + name,
                        trimmed(scaled(static_cast<double>(module.parameters))),
                        share_text(static_cast<double>(module.parameters),
                                   static_cast<double>(root_.parameters)),
                        trimmed(scaled(flops / 2)), share_text(flops, per_micro(root_.flops)),
                        fmt::format("{:.3f}", ms(module.forward)),
                        share_text(ms(module.forward), ms(root_.forward)),
                        fmt::format("{:.3f}", ms(module.backward)),
                        share_text(ms(module.backward), ms(root_.backward)),
                        rate_text(flops, ms(module.forward))});
        for (const auto& inside : module.inside) add_rows(*inside, level + 1, rows);
    }

    const Module& root_;
    const ProfiledStep& step_;
    const ModuleTableOptions& options_;
};

}  // namespace

std::string module_tables(const ModelInfo& model, std::span<const ModuleCost> costs,
                          const ProfiledStep& step, const ModuleTableOptions& options) {
    const Module root = module_tree(model, costs);
    const Tables tables(root, step, options);
    std::string text = tables.summary();
    text += fmt::format("top {} of each level, modules of one kind summed up:\n{}",
                        counted(options.top_modules, "module"), tables.levels());
    if (options.detailed) text += tables.tree();
    while (text.ends_with('\n')) text.pop_back();
    return text;
}

}  // namespace dslaunch::plan
