"""Which public names belong together: each page of the site links to its neighbours.

A docstring may have a ``See Also`` of its own, which says what each neighbour is for. The other
pages get theirs from these families. Within a family, names that are alike, or that are used one
after the other, stand side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAMILIES", "Family", "neighbours"]

SHOWN = 6
"""How many neighbours a page lists at most."""


@dataclass(frozen=True)
class Family:
    """Public names that belong together.

    Attributes:
        module: where they are, without ``dpexec.``; "" for dpexec itself.
        names: their names, parted by spaces. A name with a dot lies in another module than
            ``module``, and is also given without ``dpexec.``; one with a dot in front in dpexec.
    """

    module: str
    names: str

    def full_names(self) -> list[str]:
        """All names with their modules."""
        inside = ".".join(filter(None, ("dpexec", self.module)))
        found = []
        for name in self.names.split():
            place = "dpexec" if name[0] == "." or "." in name else inside
            found.append(f"{place}.{name.removeprefix('.')}")
        return found


# fmt: off
FAMILIES = [
    # ---- programs and running them
    Family("", "Program default_main_program default_startup_program program_guard"),
    Family("", "layers.data framework.Block framework.Operator .Variable framework.Parameter "
               "layers.create_parameter .ParamAttr .WeightNormParamAttr"),
    Family("", "Executor .CompiledProgram .ParallelExecutor executor.FetchHandler "
               "executor.as_numpy"),
    Family("framework", "switch_main_program switch_startup_program .program_guard"),
    Family("framework", "convert_np_dtype_to_dtype_ dtype_is_floating core.size_of_dtype "
                        "core.VarType data_feeder.convert_dtype"),
    Family("", "enable_dygraph disable_dygraph in_dygraph_mode dygraph.enabled"),
    Family("", "require_version is_compiled_with_cuda install_check.run_check "
               "paddle.version.show"),
    Family("", "CUDAPinnedPlace cuda_pinned_places core.Place cuda_places cpu_places"),
    Family("", "memory_optimize release_memory contrib.memory_usage viz.memory"),
    Family("", "executor.has_feed_operators executor.has_fetch_operators io.prepend_feed_ops "
               "io.append_fetch_ops io.save_inference_model"),
    Family("", "backward.append_backward gradients backward.calc_gradient framework.grad_var_name "
               "core.grad_var_suffix core.empty_var_name"),
    Family("unique_name", "generate guard switch UniqueNameGenerator"),
    Family("default_scope_funcs", "get_cur_scope enter_local_scope leave_local_scope "
                                  "scoped_function var find_var"),
    Family("core", "ProgramDesc BlockDesc OpDesc VarDesc VarType AttrType"),
    Family("", "core.Graph core.Node framework.IrGraph framework.IrOpNode framework.IrVarNode"),
    Family("core", ".LoDTensor SelectedRows get_variable_tensor from_dlpack "
                   "layers.get_tensor_from_selected_rows layers.merge_selected_rows"),
    Family("core", "is_compiled_with_brpc is_compiled_with_dist is_compiled_with_mkldnn "
                   "get_cuda_device_count globals"),
    Family("errors", "core.EnforceNotMet extend.InvalidOp MissingGradientError MissingKernelError "
                     "core.EOFException"),
    Family("errors", "ClusterError WorkerLostError StateLostError SchedulerLostError"),
    Family("proto.framework_pb2", "ProgramDesc BlockDesc OpDesc VarDesc VarType AttrType Version"),
    # ---- layers: functions of one tensor
    Family("layers", "sigmoid hard_sigmoid logsigmoid tanh stanh hard_swish swish mish gelu"),
    Family("layers", "relu relu6 brelu leaky_relu prelu elu selu maxout"),
    Family("layers", "softplus soft_relu softsign softshrink hard_shrink tanh_shrink "
                     "thresholded_relu"),
    Family("layers", "softmax log_softmax softmax_with_cross_entropy logsumexp"),
    Family("layers", "exp log log1p pow sqrt rsqrt square reciprocal erf"),
    Family("layers", "sin cos acos asin atan"),
    Family("layers", "abs sign ceil floor round clamp clip"),
    Family("layers.ops", "assign cumsum roll squeeze layers.assign layers.cumsum"),
    Family("layers.ops", "log1p mish selu softmax swish sign layers.softmax layers.swish"),
    # ---- layers: arithmetic, comparison, reductions
    Family("layers", "elementwise_add elementwise_sub elementwise_mul elementwise_div "
                     "elementwise_floordiv elementwise_mod elementwise_pow elementwise_max "
                     "elementwise_min"),
    Family("layers", "scale increment addcmul sums sum elementwise_add"),
    Family("layers", "equal not_equal less_than less_equal greater_than greater_equal "
                     "elementwise_equal allclose"),
    Family("layers", "logical_and logical_or logical_xor logical_not where"),
    Family("layers", "has_inf has_nan isfinite is_empty"),
    Family("layers", "reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_all "
                     "reduce_any logsumexp"),
    Family("layers", "argmax argmin argsort topk"),
    Family("layers", "matmul mul cross kron t dist bilinear_tensor_product cos_sim"),
    Family("layers", "tril triu diag eye"),
    # ---- layers: making and moving tensors
    Family("layers", "fill_constant zeros ones full_like ones_like zeros_like create_tensor assign "
                     "cast"),
    Family("layers", "arange range linspace meshgrid"),
    Family("layers", "randn uniform_random gaussian_random uniform_random_batch_size_like "
                     "gaussian_random_batch_size_like sampling_id"),
    Family("layers", "crop crop_tensor slice strided_slice pad"),
    Family("layers", "nonzero where multiplex gather"),
    Family("layers", "cumsum sequence_scatter scatter unfold"),
    Family("layers", "autoincreased_step_counter increment create_global_var"),
    Family("layers", "shard_index one_hot hash"),
    Family("layers", "load .load layers.assign"),
    # ---- layers: images
    Family("layers", "batch_norm inplace_abn affine_channel lrn spectral_norm"),
    Family("layers", "pool2d pool3d adaptive_pool2d adaptive_pool3d"),
    Family("layers", "interpolate image_resize resize_bilinear resize_nearest resize_trilinear "
                     "affine_grid grid_sampler"),
    Family("layers", "im2sequence unfold space_to_depth shuffle_channel temporal_shift row_conv"),
    Family("layers", "fsp_matrix similarity_focus continuous_value_model filter_by_instag"),
    Family("layers", "roi_pool roi_align prroi_pool psroi_pool deformable_roi_pooling "
                     "roi_perspective_transform"),
    Family("layers", "generate_proposals generate_proposal_labels generate_mask_labels "
                     "distribute_fpn_proposals collect_fpn_proposals rpn_target_assign "
                     "retinanet_target_assign"),
    Family("layers", "box_coder box_clip box_decoder_and_assign polygon_box_transform"),
    Family("layers", "multiclass_nms matrix_nms locality_aware_nms contrib.multiclass_nms2 "
                     "retinanet_detection_output detection_output"),
    Family("", "layers.detection.detection_map metrics.DetectionMAP evaluator.DetectionMAP"),
    # ---- layers: losses
    Family("layers", "cross_entropy log_loss bpr_loss teacher_student_sigmoid_loss "
                     "sigmoid_cross_entropy_with_logits sigmoid_focal_loss dice_loss"),
    Family("layers", "rank_loss margin_rank_loss npair_loss center_loss"),
    Family("layers", "kldiv_loss label_smooth mse_loss smooth_l1"),
    # ---- layers: sequences and loops
    Family("layers", "lstm dynamic_lstm dynamic_lstmp dynamic_gru"),
    Family("layers", "add_position_encoding im2sequence row_conv sequence_conv"),
    Family("layers", "reorder_lod_tensor_by_rank layers.control_flow.lod_rank_table "
                     "layers.control_flow.max_sequence_len layers.control_flow.shrink_memory "
                     "layers.control_flow.lod_tensor_to_array "
                     "layers.control_flow.array_to_lod_tensor"),
    Family("layers.control_flow", "ConditionalBlock split_lod_tensor merge_lod_tensor select_input "
                                  "select_output layers.cond"),
    Family("layers", "BasicDecoder Decoder BeamSearchDecoder dynamic_decode"),
    Family("layers", "DecodeHelper TrainingHelper GreedyEmbeddingHelper SampleEmbeddingHelper "
                     "BasicDecoder"),
    Family("layers.utils", "flatten pack_sequence_as map_structure assert_same_structure "
                           "is_sequence convert_to_list"),
    Family("layers", "ParallelDo get_places .CompiledProgram"),
    Family("layers", "py_reader create_py_reader_by_data double_buffer read_file .io.DataLoader"),
    Family("layers.layer_function_generator", "generate_activation_fn autodoc templatedoc "
                                              "deprecated annotations.deprecated"),
    Family("", "layer_helper.LayerHelper layers.create_parameter extend.op"),
    Family("layers.distributions", "Distribution layers.Normal layers.Uniform layers.Categorical "
                                    "layers.MultivariateNormalDiag"),
    Family("nets", "glu scaled_dot_product_attention layers.matmul layers.softmax"),
    Family("", "wrapped_decorator.wrap_decorator wrapped_decorator.signature_safe_contextmanager "
               "annotations.deprecated"),
    # ---- training
    Family("optimizer", "SGD Momentum Adam Adamax Ftrl Dpsgd"),
    Family("optimizer", "Optimizer SGD Adam regularizer.append_regularization_ops"),
    Family("optimizer", "RecomputeOptimizer PipelineOptimizer contrib.decorate"),
    Family("initializer", "Initializer Constant Xavier Bilinear"),
    Family("regularizer", "WeightDecayRegularizer L1Decay L2Decay append_regularization_ops "
                          "contrib.extend_with_decoupled_weight_decay"),
    Family("clip", "GradientClipBase ClipByValue ClipByNorm "
                   "ClipByGlobalNorm append_gradient_clip_ops error_clip_callback"),
    Family("metrics", "MetricBase Accuracy Auc CompositeMetric evaluator.Evaluator "
                      "average.WeightedAverage"),
    Family("evaluator", "ChunkEvaluator EditDistance Evaluator DetectionMAP"),
    Family("checkpoint", "Checkpoints Resumed .save sklearn.Checkpoints"),
    Family("", "weight_norm.create_normalized_weight WeightNormParamAttr ParamAttr"),
    Family("onnx", "export load from_torch"),
    Family("onnx", "ExportError LoadError UnsupportedError NotConstantError export load"),
    Family("", "from_torch onnx.load onnx.export"),
    Family("sklearn", "Classifier Regressor SparseRows"),
    Family("sklearn", "Callback EarlyStopping Checkpoints LearningRateSchedule ProgressBar "
                      "TensorBoard MLflow"),
    # ---- data
    Family("", "DataFeeder data_feeder.check_type data_feeder.check_dtype "
               "data_feeder.check_variable_and_dtype data_feeder.convert_dtype"),
    Family("", "DatasetFactory dataset.InMemoryDataset dataset.QueueDataset "
               "dataset.FileInstantDataset dataset.DatasetBase DataFeedDesc"),
    Family("data_feed_desc", ".DataFeedDesc FeedDescription SlotDescription .DatasetFactory"),
    Family("incubate.data_generator", "DataGenerator MultiSlotDataGenerator "
                                      "MultiSlotStringDataGenerator .DatasetFactory"),
    Family("io", "DataLoader Dataset BatchSampler default_collate_fn"),
    Family("reader", ".io.DataLoader .io.PyReader GeneratorLoader DatasetLoader ProgramReader"),
    Family("io", "multiprocess_reader ComposeNotAligned compose xmap_readers buffered"),
    Family("io", "cache chain firstn map_readers batch shuffle xmap_readers"),
    Family("io", "get_parameter_value get_parameter_value_by_name is_belong_to_optimizer "
                 "is_parameter get_program_parameter"),
    # ---- several processes
    Family("", "DistributeTranspiler DistributeTranspilerConfig "
               "transpiler.distribute_transpiler.DistributedMode transpiler.HashName "
               "transpiler.RoundRobin transpiler.ps_dispatcher.PSDispatcher "
               "communicator.Communicator"),
    Family("transpiler.collective", "Collective GradAllReduce LocalSGD transpile_collective"),
    Family("transpiler.details", "program_to_code block_to_code op_to_code variable_to_code "
                                 "find_op_by_input_arg find_op_by_output_arg delete_ops "
                                 "wait_server_ready"),
    Family("incubate.fleet.base.fleet_base", "Fleet Mode DistributedOptimizer "
           "incubate.fleet.collective.fleet "
           "incubate.fleet.parameter_server.distribute_transpiler.fleet"),
    Family("incubate.fleet.base.role_maker", "RoleMakerBase PaddleCloudRoleMaker "
           "UserDefinedRoleMaker UserDefinedCollectiveRoleMaker Role"),
    Family("incubate.fleet.collective", "fleet Collective CollectiveOptimizer DistributedStrategy"),
    Family("incubate.fleet.parameter_server.distribute_transpiler",
           "fleet DistributedTranspiler TranspilerOptimizer StrategyFactory SyncStrategy "
           "HalfAsyncStrategy AsyncStrategy GeoStrategy DistributedStrategy "
           "incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy"
           ".TrainerRuntimeConfig"),
    # ---- contributed
    Family("contrib", "BasicLSTMUnit BasicGRUUnit basic_lstm basic_gru layers.lstm"),
    Family("contrib", "TrainingDecoder BeamSearchDecoder StateCell InitState "
                      "layers.BeamSearchDecoder"),
    Family("contrib", "ctr_metric_bundle rank_attention search_pyramid_hash tdm_child tdm_sampler "
                      "shuffle_batch"),
    Family("contrib", "fused_elemwise_activation fused_embedding_seq_pool partial_concat "
                      "partial_sum"),
    Family("contrib", "match_matrix_tensor var_conv_2d sequence_topk_avg_pooling tree_conv"),
    Family("contrib", "memory_usage op_freq_statistic summary viz.memory"),
    Family("contrib", "decorate AutoMixedPrecisionLists "
           "contrib.mixed_precision.decorator.OptimizerWithMixedPrecision "
           "contrib.mixed_precision.fp16_utils.rewrite_program "
           "contrib.mixed_precision.fp16_utils.update_role_var_grad"),
    Family("contrib.slim.quantization", "QuantizationTransformPass AddQuantDequantPass "
           "OutScaleForTrainingPass QuantizationFreezePass ConvertToInt8Pass "
           "OutScaleForInferencePass TransformForMobilePass"),
    Family("contrib.slim.quantization", "PostTrainingQuantization WeightQuantization "
                                        "QuantizationTransformPass"),
    Family("contrib", "distributed_batch_reader io.batch"),
    # ---- seeing what happens
    Family("viz", "report draw table timeline passes memory simulate tune compare live"),
    Family("viz", "animate analyse machine_code report timeline"),
    Family("viz", "Report report Findings analyse FileError"),
    Family("viz", "Drawing draw Animation animate Table table"),
    Family("viz", "Timeline timeline Memory memory Simulation simulate Tuning tune"),
    Family("viz", "Passes passes MachineCode machine_code Comparison compare LiveView live"),
    Family("dashboard", "attach serve dask_setup LiveServer viz.live"),
    Family("profiler", "profiler start_profiler stop_profiler reset_profiler cuda_profiler "
                       "viz.report"),
    Family("debugger", "pprint_program_codes pprint_block_codes draw_block_graphviz viz.draw"),
    Family("", "log_helper.get_logger paddle.distributed.utils.get_logger"),
    # ---- extending, serving
    Family("extend", "op OpDef Spec Sample same_as require InvalidOp Lod"),
    Family("extend", "implementation lowering kernel Floats Integers Number Count"),
    Family("extend", "Pass OperatorPass SSAGraph Operators pairs fused"),
    Family("extend", "Kind Reduction Pass"),
    Family("ops", "coverage files tier1 missing main extend.op"),
    Family("core", "create_paddle_predictor AnalysisConfig AnalysisPredictor NativeConfig "
                   "NativePaddlePredictor PaddlePredictor"),
    Family("core", "PaddleTensor PaddleBuf PaddleDType ZeroCopyTensor paddle_dtype_size "
                   "paddle_tensor_to_bytes"),
    # ---- import paddle
    Family("paddle.compat", "to_text to_bytes round floor_division get_exception_message int_type"),
    Family("paddle.dataset.common", "download md5file split cluster_files_reader DATA_HOME"),
    Family("paddle.dataset.cifar", "train10 test10 train100 test100 fetch"),
    Family("paddle.dataset.conll05", "test get_dict get_embedding load_dict load_label_dict "
                                     "corpus_reader reader_creator fetch"),
    Family("paddle.dataset.imdb", "train test word_dict build_dict tokenize fetch"),
    Family("paddle.dataset.imikolov", "train test build_dict DataType fetch"),
    Family("paddle.dataset.mnist", "train test fetch paddle.dataset.cifar.train10"),
    Family("paddle.dataset.movielens", "train test movie_info MovieInfo movie_categories "
           "get_movie_title_dict max_movie_id user_info UserInfo max_user_id max_job_id age_table "
           "fetch"),
    Family("paddle.dataset.sentiment", "train test get_word_dict fetch paddle.dataset.imdb.train"),
    Family("paddle.dataset.uci_housing", "train test fetch"),
    Family("paddle.dataset.wmt14", "train test gen get_dict fetch paddle.dataset.wmt16.train"),
    Family("paddle.dataset.wmt16", "train test validation get_dict fetch "
                                   "paddle.dataset.wmt14.train"),
    Family("paddle.distributed", "paddle.distributed.launch.launch "
           "paddle.distributed.launch.get_cluster_from_args paddle.distributed.launch.get_gpus "
           "paddle.distributed.launch_ps.launch paddle.distributed.launch_ps.parse_args "
           "paddle.distributed.launch_ps.start_procs "
           "paddle.distributed.cloud_utils.get_cloud_cluster "
           "paddle.distributed.cloud_utils.get_trainers_num"),
    Family("paddle.distributed.utils", "Cluster Pod Trainer get_cluster find_free_ports "
                                       "get_host_name_ip get_logger add_arguments"),
    Family("paddle.utils", "Ploter sklearn.TensorBoard"),
    Family("paddle.version", "full_version major minor patch rc mkl with_mkl show"),
]
# fmt: on


def neighbours(full: str) -> list[str]:
    """The public names beside one in its families, nearest first.

    Args:
        full: module and name.

    Returns:
        full names, :data:`SHOWN` at most; none if no family has the name.
    """
    found: dict[str, int] = {}
    for family in FAMILIES:
        members = family.full_names()
        if full in members:
            place = members.index(full)
            for other, name in enumerate(members):
                if name != full:
                    found[name] = min(found.get(name, len(members)), abs(other - place))
    return sorted(found, key=lambda name: found[name])[:SHOWN]
