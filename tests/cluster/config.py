"""Configuration files of a Slurm whose nodes all live on this machine."""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass
from pathlib import Path

CGROUP_MEMORY = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class Layout:
    """Where a cluster keeps its files, its ports, and what its nodes claim to have."""

    directory: Path
    base_port: int
    accounting: bool = True
    cgroups: bool = False
    nodes: int = 4
    gpus: int = 4
    cpus: int = 16
    memory_mb: int = 65536

    @property
    def slurm_conf(self) -> Path:
        return self.directory / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.directory / "run" / "munge"

    @property
    def database_socket(self) -> Path:
        return self.directory / "run" / "db"

    @property
    def database_port(self) -> int:
        return self.base_port + 2

    @property
    def dbd_port(self) -> int:
        return self.base_port + 1

    def node(self, number: int) -> str:
        """Node names are the cluster's own: cgroups of two clusters on one machine must not meet."""
        return f"c{self.base_port}n{number}"

    @property
    def node_range(self) -> str:
        return f"c{self.base_port}n[1-{self.nodes}]"


def slurm_conf(layout: Layout) -> str:
    host, user, d = socket.gethostname().split(".")[0], getpass.getuser(), layout.directory
    first = layout.base_port + 10
    lines = [
        "ClusterName=cclsearch",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={layout.base_port}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "CredType=cred/munge",
        "CommunicationParameters=block_null_hash",
        "ProctrackType=proctrack/linuxproc",
        f"TaskPlugin={'task/cgroup' if layout.cgroups else 'task/none'}",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "PropagateResourceLimits=NONE",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=1",
        f"JobAcctGatherParams={'NoShared' if layout.cgroups else 'OverMemoryKill,NoShared'}",
        f"StateSaveLocation={d}/state",
        f"SlurmdSpoolDir={d}/spool/%n",
        f"SlurmctldPidFile={d}/run/slurmctld.own-pid",
        f"SlurmdPidFile={d}/run/%n.own-pid",
        f"SlurmctldLogFile={d}/log/slurmctld.log",
        f"SlurmdLogFile={d}/log/%n.log",
        "SlurmctldTimeout=60",
        "SlurmdTimeout=120",
        "InactiveLimit=0",
        "KillWait=3",
        "MinJobAge=300",
        "MessageTimeout=10",
        "BatchStartTimeout=120",
        "CompleteWait=0",
        "UnkillableStepTimeout=120",
        "ReturnToService=2",
        "JobRequeue=1",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        f"DefMemPerCPU={layout.memory_mb // layout.cpus}",
        "PriorityType=priority/multifactor",
        "PreemptType=preempt/qos",
        "PreemptMode=REQUEUE",
        *_accounting(layout, user),
        "SlurmdParameters=config_overrides",
        "GresTypes=gpu",
        f"NodeName={layout.node_range} NodeHostname={host} NodeAddr=127.0.0.1 "
        f"Port=[{first + 1}-{first + layout.nodes}] CPUs={layout.cpus} RealMemory={layout.memory_mb} "
        f"Gres=gpu:{layout.gpus} State=UNKNOWN",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=00:10:00 State=UP",
        f"PartitionName=short Nodes={layout.node(1)} MaxTime=00:05:00 DefaultTime=00:05:00 State=UP",
        f"PartitionName=closed Nodes={layout.node(1)} MaxTime=00:30:00 State=DOWN",
    ]
    return "\n".join(lines) + "\n"


def _accounting(layout: Layout, user: str) -> list[str]:
    if not layout.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={layout.dbd_port}",
        f"AccountingStorageUser={user}",
        f"AccountingStoragePass={layout.munge_socket}",
        "AccountingStorageEnforce=associations,limits,qos",
        "AccountingStorageTRES=gres/gpu",
    ]


def slurmdbd_conf(layout: Layout) -> str:
    d = layout.directory
    return "\n".join(
        [
            "AuthType=auth/munge",
            f"AuthInfo=socket={layout.munge_socket}",
            f"DbdHost={socket.gethostname().split('.')[0]}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={layout.dbd_port}",
            f"SlurmUser={getpass.getuser()}",
            f"LogFile={d}/log/slurmdbd.log",
            f"PidFile={d}/run/slurmdbd.own-pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={layout.database_port}",
            "StorageUser=slurm",
            "StoragePass=slurm",
            "StorageLoc=slurm_acct",
            "CommitDelay=0",
            "",
        ]
    )


def gres_conf(layout: Layout) -> str:
    """Links to /dev/null pass for GPUs: slurmd wants character devices whose names end in digits."""
    last = layout.gpus - 1
    return f"AutoDetect=off\nNodeName={layout.node_range} Name=gpu File={layout.directory}/dev/nvidia[0-{last}]\n"


CGROUP_CONF = (
    "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainRAMSpace=yes\nAllowedRAMSpace=100\nMinRAMSpace=4\n"
    "ConstrainSwapSpace=no\nConstrainCores=no\nConstrainDevices=no\n"
)


def accounts(layout: Layout) -> list[list[str]]:
    """Arguments of `sacctmgr`, one list a call."""
    user = getpass.getuser()
    return [
        ["add", "cluster", "cclsearch"],
        ["add", "qos", "single", "set", "MaxJobsPerUser=1", "MaxWall=00:05:00"],
        ["add", "qos", "scavenger", "set", "Priority=0", "PreemptMode=requeue"],
        ["add", "qos", "urgent", "set", "Priority=100", "Preempt=scavenger"],
        ["add", "account", "ml", "Cluster=cclsearch"],
        ["add", "user", user, "Account=ml", "DefaultAccount=ml", "AdminLevel=Admin"],
        ["modify", "user", user, "set", "qos=normal,single,scavenger,urgent", "defaultqos=normal"],
    ]


def cgroups_usable() -> bool:
    """Whether jobs over their memory can be ended by the kernel: cgroup v1 memory controller, writable."""
    probe = CGROUP_MEMORY / "ccl-search-probe"
    try:
        probe.mkdir()
    except OSError:
        return False
    limit = (probe / "memory.limit_in_bytes").exists()
    probe.rmdir()
    return limit
