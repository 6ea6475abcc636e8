#include "job/setup/job_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/text/text_table.h"
#include "job/setup/job_layout.h"
#include "runtime/schedules/exchange_schedule.h"

namespace dslaunch::job {

namespace {

constexpr int64_t kUpdatesWithoutSteps = 10'000;

int hosts_of(const JobSetup& setup) {
    return setup.place.of_stage.node_count();
}

// The bytes that this rank's host sends in all updates, and those that it would send exactly.
struct SentInAll {
    double bytes = 0;
    double exact = 0;
};

SentInAll sent_in_all(const JobSetup& setup, const std::vector<ExchangePhase>& phases) {
    SentInAll all;
    const auto exact = static_cast<double>(setup.plan.sent().value);
    for (const ExchangePhase& phase : phases) {
        all.bytes +=
            static_cast<double>(phase.plan.sent().value) * static_cast<double>(phase.updates);
        all.exact += exact * static_cast<double>(phase.updates);
    }
    return all;
}

}  // namespace

std::vector<ExchangePhase> exchange_phases(const JobSetup& setup) {
    const config::RunConfig& config = setup.config();
    runtime::ExchangeSchedule schedule(config.optimizer, hosts_of(setup));
    const int64_t updates = config.steps > 0 ? config.steps : kUpdatesWithoutSteps;
    std::vector<ExchangePhase> phases;
    if (!config.optimizer.compresses()) {
        phases.push_back({plan::Exchange::kExact, 1, updates, setup.plan});
        return phases;
    }
    for (int64_t update = 1; update <= updates; ++update) {
        const plan::Exchange exchange = schedule.of(update);
        auto found = std::ranges::find(phases, exchange, &ExchangePhase::exchange);
        if (found == phases.end()) {
            phases.push_back(
                {exchange, update, 0, make_plan(setup, setup.place.of_stage, exchange)});
            found = phases.end() - 1;
        }
        ++found->updates;
    }
    return phases;
}

std::string exchange_table(const JobSetup& setup, const std::vector<ExchangePhase>& phases) {
    if (!setup.config().optimizer.compresses()) return "";
    std::vector<std::vector<std::string>> rows = {
        {"hosts exchange", "first in update", "updates", "sent by this host"}};
    for (const ExchangePhase& phase : phases)
        rows.push_back({std::string(plan::exchange_name(phase.exchange)),
                        std::to_string(phase.first_update), std::to_string(phase.updates),
                        to_text(phase.plan.sent())});
    std::string text = text_table(rows, {.align = "<>>>"});
    const SentInAll sent = sent_in_all(setup, phases);
    if (sent.bytes > 0)
        text += fmt::format(
            "over these updates {:.3g} times fewer bytes than with gradients in "
            "full\n",
            sent.exact / sent.bytes);
    return text;
}

void exchange_json(const std::vector<ExchangePhase>& phases, JsonWriter& json) {
    json.begin_array();
    for (const ExchangePhase& phase : phases) {
        json.begin_object().field("exchange", plan::exchange_name(phase.exchange));
        json.field("first_update", phase.first_update).field("updates", phase.updates);
        json.field("sent_bytes", phase.plan.sent().value).end_object();
    }
    json.end_array();
}

std::string exchange_line(const JobSetup& setup) {
    if (!setup.config().optimizer.compresses()) return "";
    if (hosts_of(setup) == 1)
        return "one host: its ranks sum gradients in memory, so nothing is compressed; where "
               "several "
               "hosts would compress, the variance stays as it is and the rest is exact";
    const std::vector<ExchangePhase> phases = exchange_phases(setup);
    std::string text = "hosts exchange";
    for (const ExchangePhase& phase : phases)
        text += fmt::format("{} {} in {} ({} each)", &phase == &phases.front() ? "" : ",",
                            plan::exchange_name(phase.exchange), counted(phase.updates, "update"),
                            to_text(phase.plan.sent()));
    const SentInAll sent = sent_in_all(setup, phases);
    return text + fmt::format("; {:.3g} times fewer bytes than with gradients in full",
                              sent.bytes > 0 ? sent.exact / sent.bytes : 1.0);
}

}  // namespace dslaunch::job
