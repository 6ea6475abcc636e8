// The copies of dslaunch that mpirun starts: `mpirun -np 8 dslaunch TARGET`. Copy 0 launches the
// job, the first copy on each other host becomes its agent, the rest wait. The copies exchange
// their hosts through PMIx, so that no hostfile is needed.
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
    // Returns true if Open MPI's mpirun has started this process as one of several, and no option
    // names a source of hosts.
    [[nodiscard]] static bool is_one(const RunOptions& options, const Machine& machine);

    // Throws Error{kUsage} for options that such copies cannot have. REQUIRES: is_one().
    static void check(const RunOptions& options);

    // Connects to the other copies. Throws Error{kSetup} with the advice to give a hostfile if
    // there is no PMIx.
    explicit MpiCopies(const Machine& machine);

    // Returns one entry per host, in the order of their first copies, with as many slots as copies.
    // REQUIRES: launches().
    [[nodiscard]] const JoiningHosts& joining() const { return joining_; }
    [[nodiscard]] const std::string& token() const { return token_; }
    [[nodiscard]] bool launches() const { return session_.rank() == 0; }
    // Does the work of a copy that does not launch, until the job's end. Returns the exit code.
    [[nodiscard]] int serve();
    // Ends the exchange. REQUIRES: launches(), and the job has ended.
    void finish();

  private:
    void choose_place(uint32_t copies);
    void forget_mpi() const;

    launch::PmixSession session_;
    JoiningHosts joining_;
    std::string token_;
    std::optional<uint32_t> node_;  // node whose agent this copy is
    UniqueFd held_port_;
};

}  // namespace dslaunch::launcher
