#!/usr/bin/env bash
# Repeats this trial: its policy, on the card and the config space of its search, on the same target.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p repeat
cat > repeat/card.yaml <<'END_OF_FILE'
version: 1
description: 'wl6: training of deepseek-v2-lite on 128 nvidia_a100_40gb with torchtitan'
hf_url: https://huggingface.co/deepseek-ai/DeepSeek-V2-Lite
trace_url: ''
contributor: ''
contact: ''
workload:
  model:
    phase: training
    moe: true
    granularity: model_fwd_bwd_pass
    model_family: deepseek-v2-lite
    precision: bf16
    epochs: 1
    model_arch:
      num_params: 15706484224
      num_params_embedding: 419430400
      num_layers: 27
      num_heads: 16
      head_dim: 128
      num_active_params: 2661244928
      num_kv_heads: 16
      hidden_size: 2048
      intermediate_size: 10944
      vocab_size: 102400
      attention: mla
      kv_lora_rank: 512
      qk_nope_head_dim: 128
      qk_rope_head_dim: 64
      v_head_dim: 128
      num_experts: 64
      num_experts_per_tok: 6
      num_shared_experts: 2
      moe_intermediate_size: 1408
      first_dense_layers: 1
  data:
    batch_size: 64
    seq_len: 2048
  hardware:
    network_topo:
      topology: perlmutter
      bandwidth_gbps:
      - 200
      - 2400
      nics_per_node: 4
      latency_us:
      - 3.5
      - 1.0
    xpu_spec:
      type: GPU
      model: nvidia_a100_40gb
      total_count: 128
      count_per_node: 4
    driver_version: cuda_12.4
    name: perlmutter-a100-128
  name: wl6
Model-executor:
  framework:
    name: torchtitan
    version: 0.2.2
  communication_library:
    name: NCCL
    env: {}
metric_source:
  traces:
  - json
  metrics_specific_trace: []
END_OF_FILE
cat > repeat/space.yaml <<'END_OF_FILE'
name: torchtitan
world_size: tp * pp * dp
knobs:
- key: tp
  type: int
  choices:
  - 1
  - 2
  - 4
  - 8
  description: tensor-parallel degree (with sequence parallelism)
- key: pp
  type: int
  choices:
  - 1
  - 2
  - 3
  - 4
  - 8
  - 9
  - 16
  description: pipeline-parallel degree; stages may be uneven (odd degrees where no even one divides the
    layers)
- key: dp
  type: int
  choices:
  - 2
  - 4
  - 8
  - 16
  - 32
  - 64
  description: data-parallel degree, replicas times shards
- key: dp_shard
  type: int
  choices:
  - 2
  - 4
  - 8
  - 16
  - 32
  - 64
  description: ranks that shard parameters, gradients and optimizer (FSDP); less than dp means HSDP
- key: ep
  type: int
  choices:
  - 1
  - 2
  - 4
  - 8
  - 16
  - 32
  - 64
  description: expert-parallel degree, carved out of dp_shard and tp
- key: zero_stage
  type: int
  choices:
  - 2
  - 3
  description: 3 frees gathered parameters after the forward pass, 2 keeps them for the backward pass
- key: micro_batch_size
  type: int
  choices:
  - 1
  - 2
  - 4
  - 8
  description: sequences per micro-batch and data-parallel rank
- key: pipeline_schedule
  type: str
  choices:
  - 1f1b
  - interleaved
  description: order of micro-batches in the pipeline; interleaved has two stages a rank
- key: activation_checkpointing
  type: str
  choices:
  - none
  - selective
  - full
  description: what the backward pass recomputes
- key: compile
  type: bool
  choices:
  - false
  - true
  description: compile each block with torch.compile
constraints:
- name: devices
  expression: tp * pp * dp <= environment.total_gpus
  message: the product of the degrees exceeds the devices
- name: whole_nodes
  expression: tp * pp * dp <= environment.gpus_per_node or tp * pp * dp % environment.gpus_per_node ==
    0
  message: more than one node must be used whole
- name: global_batch
  expression: workload.batch_size % (dp * micro_batch_size) == 0
  message: dp * micro_batch_size must divide the global batch
- name: shard_divides_dp
  expression: dp % dp_shard == 0
  message: dp_shard must divide dp (dp_replicate is the quotient)
- name: mixed_precision
  expression: dp_shard > 1 or tp * pp == 1 or workload.precision == 'fp32'
  message: with tp or pp, bf16 needs FSDP (dp_shard or cp above 1); otherwise all is computed in fp32
- name: replicas_of_shards
  expression: dp == dp_shard or dp_shard >= environment.gpus_per_node
  message: replicas (dp_shard below dp) are offered for shards of a node or more
- name: zero_stage_needs_shards
  expression: zero_stage == 3 or dp_shard > 1
  message: without shards there is nothing to keep; zero_stage 2 is the same as 3
- name: kv_heads
  expression: workload.num_kv_heads % tp == 0
  message: tp must divide the key/value heads
- name: sequence
  expression: workload.seq_len % (2 * tp) == 0
  message: the sequence must split into 2 * cp * tp parts
- name: ep_holds_tp
  expression: ep == 1 or ep % tp == 0
  message: expert parallelism borrows all of tp and cp, which must divide ep
- name: ep_divides_shards
  expression: ep == 1 or dp_shard * tp % ep == 0
  message: ep must divide dp_shard * cp * tp
- name: enough_micro_batches
  expression: pp == 1 or workload.batch_size // (dp * micro_batch_size) >= pp
  message: a pipeline needs at least pp micro-batches
- name: interleaved_rounds
  expression: pipeline_schedule != 'interleaved' or workload.batch_size // (dp * micro_batch_size) % pp
    == 0
  message: the interleaved schedule needs a multiple of pp micro-batches
- name: interleaved_stages
  expression: pipeline_schedule != 'interleaved' or 2 * pp <= workload.num_layers
  message: the interleaved schedule has two stages a rank, each with a layer
- name: schedule_needs_pp
  expression: pipeline_schedule == '1f1b' or pp > 1
  message: without a pipeline (pp 1) the schedule is 1f1b
END_OF_FILE
ccl-search run --card repeat/card.yaml --space repeat/space.yaml --policy policy.py --iterations 0 --seed 0 --sandbox monty --retries 2 --time-limit 3600 --objective avg_step_time --target dry-run --home repeat
