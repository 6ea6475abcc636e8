// `mpirun -np 8 dslaunch TARGET`: as many copies of dslaunch as mpirun was asked for. Copy 0
// launches the job, the first copy on each other host becomes its agent, the rest wait. What a copy
// must know of the others goes through PMIx, so that no hostfile is needed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/hosts/hostfile.h"
#include "launch/transport/join/pmix.h"
#include "launcher/run/build_job.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

class MpiCopies {
  public:
    // Whether Open MPI's mpirun has started this process as one of several, and no option says
    // where the hosts come from.
    [[nodiscard]] static bool is_one(const RunOptions& options, const Machine& machine);

    // Throws Error{kUsage} for options that such copies cannot have. REQUIRES: is_one().
    static void check(const RunOptions& options);

    // Meets the other copies. Throws Error{kSetup} that says to give a hostfile: no PMIx.
    explicit MpiCopies(const Machine& machine);

    // One entry per host, in the order of their first copies; as many slots as copies.
    // REQUIRES: launches().
    [[nodiscard]] const JoiningHosts& joining() const { return joining_; }
    [[nodiscard]] const std::string& token() const { return token_; }
    [[nodiscard]] bool launches() const { return session_.rank() == 0; }
    // What a copy does that does not launch: until the job has ended. The exit code.
    [[nodiscard]] int serve();
    // REQUIRES: launches(), the job has ended.
    void finish();

  private:
    void choose_place(uint32_t copies);
    void forget_mpi() const;

    launch::PmixSession session_;
    JoiningHosts joining_;
    std::string token_;
    std::optional<uint32_t> node_;  // whose agent this copy is
    UniqueFd held_port_;
};

}  // namespace dslaunch::launcher
