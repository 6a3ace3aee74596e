(* Screens: python/dpgep/privacy/screening.py. Released are the diagonal of the second moment and, of two and more views,
   the norms of the rows of the products between views (no more than these move: `row_norms`). Rows x are in the unit
   ball, and m is the mean of the others. *)

From Proofs Require Import Vectors Views.

(* constants: squared changes of all that is released; `_views_sensitivity`, squared *)
Definition uncentred_replaced : R := 2.
Definition uncentred_added : R := 1.
Definition two_views_replaced : R := 27 / 2.
Definition two_views_added : R := 17 / 2.
Definition several_views_replaced : R := 2 + 16.
Definition several_views_added (k : R) : R := 1 + 16 * (1 - 1 / k).
(* of a covariance about the mean, times n/(n - 1) *)
Definition covariance_replaced : R := 16.
(* end *)

Theorem uncentred d view x x' : squared d x <= 1 -> squared d x' <= 1 ->
  let change := difference (outer x x) (outer x' x') in
  diagonal d change + between d view change <= uncentred_replaced /\
  diagonal d (outer x x) + between d view (outer x x) <= uncentred_added.
Proof.
  intros X X' change. unfold uncentred_replaced, uncentred_added.
  pose proof (parts d view change). pose proof (parts d view (outer x x)).
  pose proof (moment_replaced d x x' X X'). pose proof (moment_added d x X). fold change in H1. lra.
Qed.

Theorem covariance d x x' m : squared d x <= 1 -> squared d x' <= 1 -> squared d m <= 1 ->
  frobenius d d (difference (outer (minus x m) (minus x m)) (outer (minus x' m) (minus x' m))) <= covariance_replaced.
Proof.
  intros X X' M. rewrite frobenius_difference. unfold covariance_replaced.
  pose proof (scalars_are d x x' m) as E. pose proof (inequalities d x x' m) as I. cbv zeta in E, I.
  destruct E as (Ex & Ex' & -> & -> & ->). destruct I as (b0 & B0 & M0 & HP & HR & _ & HD).
  change (M_ (scalars_of d x x' m)) with (squared d m) in *.
  destruct (scalars_of d x x' m) as [b B P R D M']. simpl in *.
  pose proof (centred b B P R D (squared d m) b0 B0 (conj M0 M) HP HR HD ltac:(lra) ltac:(lra)). nra.
Qed.

(* Several views about the mean. *)
Theorem several_views d view k x x' m : (0 < k)%nat -> (forall i, (i < d)%nat -> (view i < k)%nat) ->
  squared d x <= 1 -> squared d x' <= 1 -> squared d m <= 1 ->
  let change := difference (outer (minus x m) (minus x m)) (outer (minus x' m) (minus x' m)) in
  diagonal d (difference (outer x x) (outer x' x')) + between d view change <= several_views_replaced /\
  diagonal d (outer x x) + between d view (outer (minus x m) (minus x m)) <= several_views_added (INR k).
Proof.
  intros K W X X' M change. unfold several_views_replaced, several_views_added.
  pose proof (covariance d x x' m X X' M) as C. fold change in C. unfold covariance_replaced in C.
  pose proof (parts d view change). pose proof (nonneg_parts d view change).
  pose proof (parts d view (difference (outer x x) (outer x' x'))) as H1. pose proof (parts d view (outer x x)) as H2.
  pose proof (nonneg_parts d view (difference (outer x x) (outer x' x'))). pose proof (nonneg_parts d view (outer x x)).
  pose proof (moment_replaced d x x' X X'). pose proof (moment_added d x X). split; [lra|].
  pose proof (between_of_a_row d view k (minus x m) K W) as Hb.
  pose proof (squared_minus_le d x m) as Q. pose proof (squared_nonneg d (minus x m)).
  assert (squared d (minus x m) * squared d (minus x m) <= 16) by nra.
  assert (0 <= 1 - 1 / INR k).
  { assert (1 <= INR k) by (apply (le_INR 1); lia). apply Rmult_le_reg_r with (INR k); [lra|].
    unfold Rdiv. rewrite Rmult_minus_distr_r, Rmult_assoc, Rinv_l by lra. lra. }
  assert ((1 - 1 / INR k) * (squared d (minus x m) * squared d (minus x m)) <= (1 - 1 / INR k) * 16)
    by (apply Rmult_le_compat_l; trivial). lra.
Qed.

Theorem two_views d e x y x' y' m n :
  squared d x + squared e y <= 1 -> squared d x' + squared e y' <= 1 -> squared d m + squared e n <= 1 ->
  diagonal d (difference (outer x x) (outer x' x')) + diagonal e (difference (outer y y) (outer y' y'))
  + 2 * frobenius d e (difference (outer (minus x m) (minus y n)) (outer (minus x' m) (minus y' n)))
  <= two_views_replaced.
Proof.
  intros X X' M. unfold two_views_replaced. rewrite frobenius_difference.
  pose proof (diagonal_change d x x' m) as D1. pose proof (diagonal_change e y y' n) as D2.
  pose proof (scalars_are d x x' m) as E1. pose proof (scalars_are e y y' n) as E2.
  pose proof (lengths_of d x x' m) as L1. pose proof (lengths_of e y y' n) as L2. cbv zeta in *.
  destruct E1 as (Ex & Ex' & -> & -> & ->). destruct E2 as (Ey & Ey' & -> & -> & ->).
  change (squared d m) with (M_ (scalars_of d x x' m)) in M. change (squared e n) with (M_ (scalars_of e y y' n)) in M.
  destruct L1 as (o1 & v1 & n1 & L1). destruct L2 as (o2 & v2 & n2 & L2).
  destruct (scalars_of d x x' m) as [b1 B1 P1 R1 Q1 M1]. destruct (scalars_of e y y' n) as [b2 B2 P2 R2 Q2 M2]. simpl in *.
  pose proof (two_views_scalars _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ L1 L2 M ltac:(lra) ltac:(lra)). lra.
Qed.

Theorem two_views_of_one d e x y m n :
  squared d x + squared e y <= 1 -> squared d m + squared e n <= 1 ->
  diagonal d (outer x x) + diagonal e (outer y y) + 2 * frobenius d e (outer (minus x m) (minus y n)) <= two_views_added.
Proof.
  intros X M. unfold two_views_added. pose proof (one_row_of_two_views d e x y m n X M). lra.
Qed.

(* Attained: by (1/2, +-sqrt 3/2) with all others at (-1, 0), and by (1, 1)/sqrt 2 with all others opposite; of what is
   not centred by (1, 0) and (0, 1); the covariance by 1 and -1 with all others at -1. *)
Theorem two_views_are_attained :
  (exists x y x' y' m n : vector, squared 1 x + squared 1 y = 1 /\ squared 1 x' + squared 1 y' = 1 /\ squared 1 m + squared 1 n = 1 /\
    diagonal 1 (difference (outer x x) (outer x' x')) + diagonal 1 (difference (outer y y) (outer y' y'))
    + 2 * frobenius 1 1 (difference (outer (minus x m) (minus y n)) (outer (minus x' m) (minus y' n))) = two_views_replaced) /\
  (exists x m : vector, squared 1 x + squared 1 x = 1 /\ squared 1 m + squared 1 m = 1 /\
    diagonal 1 (outer x x) + diagonal 1 (outer x x) + 2 * frobenius 1 1 (outer (minus x m) (minus x m)) = two_views_added) /\
  (exists x x' m : vector, squared 1 x = 1 /\ squared 1 x' = 1 /\ squared 1 m = 1 /\
    frobenius 1 1 (difference (outer (minus x m) (minus x m)) (outer (minus x' m) (minus x' m))) = covariance_replaced).
Proof.
  pose proof (sqrt_sqrt 3 ltac:(lra)) as T. pose proof (sqrt_sqrt (1 / 2) ltac:(lra)) as H.
  set (r := sqrt 3) in *. set (h := sqrt (1 / 2)) in *.
  unfold two_views_replaced, two_views_added, covariance_replaced.
  split; [|split].
  - exists (fun _ => 1 / 2), (fun _ => r / 2), (fun _ => 1 / 2), (fun _ => - r / 2), (fun _ => -1), (fun _ => 0).
    unfold diagonal, frobenius, squared, dot, difference, outer, minus. simpl. repeat split; nra.
  - exists (fun _ => h), (fun _ => - h).
    unfold diagonal, frobenius, squared, dot, difference, outer, minus. simpl.
    assert (h * h * (h * h) = 1 / 4) by (rewrite H; field). repeat split; lra.
  - exists (fun _ => 1), (fun _ => -1), (fun _ => -1).
    unfold frobenius, squared, dot, difference, outer, minus. simpl. repeat split; lra.
Qed.

Theorem uncentred_is_attained : exists x x' : vector, squared 2 x = 1 /\ squared 2 x' = 1 /\
  diagonal 2 (difference (outer x x) (outer x' x')) = uncentred_replaced /\ diagonal 2 (outer x x) = uncentred_added.
Proof.
  exists (fun i => if Nat.eqb i 0 then 1 else 0), (fun i => if Nat.eqb i 1 then 1 else 0).
  unfold diagonal, squared, dot, difference, outer, uncentred_replaced, uncentred_added. simpl. repeat split; lra.
Qed.
