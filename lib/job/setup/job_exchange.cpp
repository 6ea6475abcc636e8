#include "job/setup/job_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/text/text_table.h"
#include "job/setup/job_layout.h"
#include "job/setup/step_kinds.h"

namespace dslaunch::job {

namespace {

constexpr int64_t kUpdatesWithoutSteps = 10'000;

int hosts_of(const JobSetup& setup) {
    return setup.place.of_stage.node_count();
}

// The bytes that this rank's host sends in all updates, and the bytes that it would send without
// compression.
struct SentInAll {
    double bytes = 0;
    double exact = 0;
};

SentInAll sent_in_all(const JobSetup& setup, const std::vector<StepPhase>& phases) {
    SentInAll all;
    const auto exact = static_cast<double>(setup.plan.sent().value);
    for (const StepPhase& phase : phases) {
        all.bytes +=
            static_cast<double>(phase.plan.sent().value) * static_cast<double>(phase.updates);
        all.exact += exact * static_cast<double>(phase.updates);
    }
    return all;
}

}  // namespace

std::vector<StepPhase> step_phases(const JobSetup& setup) {
    const config::RunConfig& config = setup.config();
    StepKinds kinds(setup);
    const int64_t updates = config.steps > 0 ? config.steps : kUpdatesWithoutSteps;
    std::vector<StepPhase> phases;
    if (!StepKinds::differ(config)) {
        phases.push_back({{}, 1, updates, setup.plan});
        return phases;
    }
    for (int64_t update = 1; update <= updates; ++update) {
        const plan::StepKind kind = kinds.of(update);
        auto found = std::ranges::find(phases, kind, &StepPhase::kind);
        if (found == phases.end()) {
            phases.push_back({kind, update, 0, make_plan(setup, setup.place.of_stage, kind)});
            found = phases.end() - 1;
        }
        ++found->updates;
    }
    return phases;
}

std::string exchange_table(const JobSetup& setup, const std::vector<StepPhase>& phases) {
    if (!setup.config().optimizer.compresses()) return "";
    std::vector<std::vector<std::string>> rows = {
        {"hosts exchange", "first in update", "updates", "sent by this host"}};
    for (const StepPhase& phase : phases)
        rows.push_back({std::string(plan::exchange_name(phase.kind.exchange)),
                        std::to_string(phase.first_update), std::to_string(phase.updates),
                        to_text(phase.plan.sent())});
    std::string text = text_table(rows, {.align = "<>>>"});
    const SentInAll sent = sent_in_all(setup, phases);
    if (sent.bytes > 0)
        text += fmt::format(
            "in these updates hosts send {:.3g} times fewer bytes than with uncompressed "
            "gradients\n",
            sent.exact / sent.bytes);
    return text;
}

namespace {

Bytes disk_bytes(const plan::StepPlan& plan) {
    Bytes bytes;
    for (const plan::Instruction& instruction : plan.instructions)
        if (instruction.op == plan::Op::kRead || instruction.op == plan::Op::kWrite)
            bytes += instruction.bytes;
    return bytes;
}

std::string name_of(const plan::LagPlan& lag) {
    return fmt::format(
        "{}{}{}", plan::lag_name(lag.kind),
        lag.fills ? "; the step's gradients are the last that the next late update uses" : "",
        lag.selects ? "; it chooses important units" : "");
}

}  // namespace

std::string phase_title(const StepPhase& phase) {
    if (phase.kind.lag.on) return "a step updates " + name_of(phase.kind.lag);
    return fmt::format("hosts exchange {}", plan::exchange_name(phase.kind.exchange));
}

std::string lag_table(const JobSetup& setup, const std::vector<StepPhase>& phases) {
    if (!setup.config().lagging.on) return "";
    std::vector<std::vector<std::string>> rows = {
        {"a step updates", "first in update", "updates", "read and written on disk"}};
    for (const StepPhase& phase : phases)
        rows.push_back({name_of(phase.kind.lag), std::to_string(phase.first_update),
                        std::to_string(phase.updates), to_text(disk_bytes(phase.plan))});
    return text_table(rows, {.align = "<>>>"});
}

std::string lag_line(const JobSetup& setup) {
    const config::LaggingConfig& lagging = setup.config().lagging;
    if (!lagging.on) return "";
    return fmt::format(
        "updates lag (zenflow): each step updates the most important {:.3g} % of each block of {} "
        "elements; the other elements are updated every {}{}. The important elements are chosen "
        "every {}. In the first {}, everything is updated",
        100 * lagging.topk_ratio, setup.layout.block_numel,
        counted(lagging.update_interval, "step"), lagging.overlap ? ", during the next step" : "",
        counted(lagging.select_interval, "step"),
        counted(std::max<int64_t>(1, lagging.warm_up_steps), "step"));
}

void phases_json(const std::vector<StepPhase>& phases, JsonWriter& json) {
    json.begin_array();
    for (const StepPhase& phase : phases) {
        json.begin_object().field("exchange", plan::exchange_name(phase.kind.exchange));
        json.field("updates_of", plan::lag_name(phase.kind.lag.kind));
        json.field("chooses", phase.kind.lag.selects).field("fills", phase.kind.lag.fills);
        json.field("first_update", phase.first_update).field("updates", phase.updates);
        json.field("sent_bytes", phase.plan.sent().value).end_object();
    }
    json.end_array();
}

std::string exchange_line(const JobSetup& setup) {
    if (!setup.config().optimizer.compresses()) return "";
    if (hosts_of(setup) == 1)
        return "one host: its ranks sum gradients in memory, so nothing is compressed. The "
               "variance is frozen in the same updates as on several hosts; everything else is "
               "exact";
    const std::vector<StepPhase> phases = step_phases(setup);
    std::string text = "hosts exchange";
    for (const StepPhase& phase : phases)
        text += fmt::format("{} {} in {} ({} each)", &phase == &phases.front() ? "" : ",",
                            plan::exchange_name(phase.kind.exchange),
                            counted(phase.updates, "update"), to_text(phase.plan.sent()));
    const SentInAll sent = sent_in_all(setup, phases);
    return text + fmt::format("; {:.3g} times fewer bytes than with uncompressed gradients",
                              sent.bytes > 0 ? sent.exact / sent.bytes : 1.0);
}

}  // namespace dslaunch::job
