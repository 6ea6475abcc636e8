#include "launch/supervise/resume_advice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "launch/supervise/failure_report.h"

namespace dslaunch::launch {

bool ResumeAdvice::saves() const {
    return spec_.target_kind == TargetKind::kModel && spec_.duty == ModelDuty::kTrain &&
           !spec_.output_directory.empty();
}

bool ResumeAdvice::has_checkpoint() const {
    return saves() && ::access((spec_.output_directory + "/checkpoints/latest").c_str(), F_OK) == 0;
}

bool ResumeAdvice::has_lost_output() const {
    return saves() && is_missing(spec_.output_directory);
}

std::string ResumeAdvice::after_failure(const RankRecord& culprit, int64_t newest_step) const {
    if (!saves() || !culprit.started || spec_.resume_command.empty() || is_told_whole(culprit))
        return "";
    if (has_lost_output()) return "";  // JobFiles::finish() says what to do
    // If copies of the model are no longer equal (runtime/watch/equal_check.cpp), the learning rate
    // is not to blame.
    const bool diverged = culprit.failure &&
                          culprit.failure->code == static_cast<uint32_t>(ExitCode::kDiverged) &&
                          culprit.failure->message.find("equal copies") == std::string::npos;
    // The launcher cannot see a checkpoint on another host's disk.
    if (has_checkpoint() || spec_.transport != TransportKind::kLocal)
        return fmt::format("dslaunch: {}to resume from the newest checkpoint{}, go on with: {}\n",
                           diverged ? "lower the learning rate; " : "",
                           has_checkpoint() ? "" : " (if there is one)",
                           printable(spec_.resume_command));
    if (newest_step == 0) return "";
    return fmt::format("dslaunch: no checkpoint was saved, so the next run starts at step 1{}\n",
                       diverged ? "; give the next run a lower learning rate (--lr)"
                                : "; --save-interval N saves a checkpoint every N steps");
}

// Returns ": " and the reason why the RANKS of an interrupted job ended before they had saved.
// Empty if a rank failed by itself: its own report follows.
std::string ResumeAdvice::unsaved_text(const std::vector<RankRecord>& ranks,
                                       bool ended_at_once) const {
    if (spec_.grace.count() == 0) return ": --grace 0 leaves no time to save";
    if (ended_at_once) return ": a second signal ended the job before it saved";
    const auto failed_itself = [](const RankRecord& rank) {
        return rank.failed() && !rank.told_to_end;
    };
    if (std::ranges::any_of(ranks, failed_itself)) return "";
    return fmt::format(": it did not save within the {:g} s of --grace",
                       std::chrono::duration<double>(spec_.grace).count());
}

std::string ResumeAdvice::describe_interrupted(const std::vector<RankRecord>& ranks,
                                               int64_t newest_step, bool ended_at_once) const {
    const bool trains = spec_.target_kind == TargetKind::kModel && spec_.duty == ModelDuty::kTrain;
    const bool all_ended = std::ranges::all_of(ranks, &RankRecord::ended);
    const char* const ended =
        all_ended ? "every rank has ended" : "not every rank is known to have ended";
    if (!saves() || spec_.resume_command.empty())
        return fmt::format("dslaunch: interrupted; {}{}\n", ended,
                           trains && !saves() ? ", and nothing was saved" : "");
    if (has_lost_output()) return fmt::format("dslaunch: interrupted; {}\n", ended);
    const bool all_well = std::ranges::none_of(ranks, &RankRecord::failed);
    if (all_well && newest_step > 0)
        return fmt::format("dslaunch: interrupted; {}, and step {} is saved; go on with: {}\n",
                           ended, newest_step, printable(spec_.resume_command));
    if (has_checkpoint())
        return fmt::format(
            "dslaunch: interrupted; {} before {}; to resume from the newest checkpoint, go on "
            "with: {}\n",
            ended,
            newest_step > 0 ? "everything was saved" + unsaved_text(ranks, ended_at_once)
                            : "a step was trained",
            printable(spec_.resume_command));
    if (newest_step > 0)
        return fmt::format("dslaunch: interrupted; {}, and no checkpoint was saved{}\n", ended,
                           unsaved_text(ranks, ended_at_once));
    return fmt::format(
        "dslaunch: interrupted; {} before the first step, so nothing was trained or saved\n",
        ended);
}

}  // namespace dslaunch::launch
