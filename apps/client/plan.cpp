#include "dslaunch/plan.h"

#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "client/program.h"
#include "launch/process/spawn.h"

namespace dslaunch {

namespace {

using Json = nlohmann::json;

// Memory for the output of a child process; it is read after the child has ended.
class WrittenText {
  public:
    WrittenText() : fd_(::memfd_create("dslaunch-plan", MFD_CLOEXEC)) {
        if (!fd_.valid())
            fail(ExitCode::kSetup, "no memory for the output of dslaunch: {}", errno_text(errno));
    }
    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] std::string text() const {
        std::string text(static_cast<size_t>(::lseek(fd_.get(), 0, SEEK_END)), '\0');
        size_t done = 0;
        while (done < text.size()) {
            const ssize_t n = ::pread(fd_.get(), text.data() + done, text.size() - done,
                                      static_cast<off_t>(done));
            if (n <= 0) break;
            done += static_cast<size_t>(n);
        }
        return text;
    }

  private:
    UniqueFd fd_;
};

// Throws the error of a child that ended with CODE and wrote SAID to stderr.
[[noreturn]] void fail_as(int code, std::string said) {
    constexpr std::string_view kPrefix = "dslaunch: error: ";
    if (const size_t at = said.rfind(kPrefix); at != std::string::npos)
        said.erase(0, at + kPrefix.size());
    while (!said.empty() && said.back() == '\n') said.pop_back();
    const bool is_own = is_own_code(static_cast<uint32_t>(code));
    throw Error(is_own ? static_cast<ExitCode>(code) : ExitCode::kRankFailed,
                is_own && !said.empty()
                    ? said
                    : fmt::format("dslaunch plan ended with exit code {}: {}", code, said));
}

PlanInstruction instruction_of(const Json& json) {
    PlanInstruction instruction;
    instruction.op = json.at("op");
    instruction.lane = json.at("lane");
    instruction.segment = json.value("segment", -1);
    instruction.bucket = json.value("bucket", -1);
    instruction.micro_step = json.value("micro_step", -1);
    instruction.bytes = json.at("bytes");
    instruction.sent_bytes = json.at("sent_bytes");
    instruction.flops = json.at("flops");
    instruction.waits = json.at("waits").get<std::vector<int>>();
    return instruction;
}

Plan plan_of(const std::string& text) {
    const Json json = Json::parse(text);
    Plan plan;
    plan.json = text;
    plan.parameters = json.at("parameters");
    plan.trainable_parameters = json.at("trainable_parameters");
    for (const Json& one : json.at("ranks")) {
        RankPlan rank;
        rank.rank = one.at("rank");
        for (const Json& instruction : one.at("instructions"))
            rank.instructions.push_back(instruction_of(instruction));
        rank.sent_bytes = one.at("sent_bytes");
        rank.disk_read_bytes = one.at("disk_read_bytes");
        rank.disk_written_bytes = one.at("disk_written_bytes");
        plan.ranks.push_back(std::move(rank));
    }
    const Json& admission = json.at("admission");
    plan.fits = admission.at("fits");
    plan.advice = admission.at("advice");
    for (const Json& one : admission.at("tiers")) {
        PlanTier tier;
        tier.name = one.at("tier");
        tier.need_bytes = one.at("need_bytes");
        if (!one.at("limit_bytes").is_null()) tier.limit_bytes = one.at("limit_bytes");
        tier.limited_by = one.at("limited_by");
        plan.tiers.push_back(std::move(tier));
    }
    if (json.contains("forecast")) plan.step_seconds = json.at("forecast").at("step_s");
    return plan;
}

}  // namespace

Plan make_plan(const PlanRequest& request) {
    if (request.model.empty()) fail(ExitCode::kUsage, "PlanRequest::model names no model");
    const WrittenText out, err;
    launch::SpawnRequest spawn;
    spawn.command = {client::find_dslaunch(request.program), "plan", "--json"};
    spawn.command.insert(spawn.command.end(), request.options.begin(), request.options.end());
    spawn.command.push_back(request.model);
    spawn.stdout_fd = out.fd();
    spawn.stderr_fd = err.fd();
    const launch::SpawnResult started = launch::spawn(spawn);
    if (!started.error.empty()) fail(ExitCode::kSetup, "{}", started.error);
    const std::optional<int> code =
        launch::wait_or_kill(started.pid, request.time_limit, /*is_group=*/true);
    if (!code)
        fail(ExitCode::kHang, "dslaunch plan did not end within {} ms", request.time_limit.count());
    if (*code != 0) fail_as(*code, err.text());
    try {
        return plan_of(out.text());
    } catch (const Json::exception& error) {
        fail(ExitCode::kInternal,
             "cannot read the output of dslaunch plan: {}; dslaunch and this library must have the "
             "same version",
             error.what());
    }
}

}  // namespace dslaunch
